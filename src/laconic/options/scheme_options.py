"""The options that schemes take, by name: what the command line and the docs say of them.

A scheme takes the arguments of its function in `schemes.py` and the fields of its training. Defaults and checks are
there. An option that is not listed here has no flag, and is set with `--set scheme.NAME=VALUE`.
"""

from __future__ import annotations

from laconic.options.declare import Declared, Option


def _declared(name: str, kind: object, help: str, shown: str | None = None) -> Declared:
    return Declared("scheme", name, kind, None, Option(help=help, shown=shown))


SCHEME_OPTIONS: dict[str, Declared] = {
    one.name: one
    for one in (
        _declared("local_steps", int, "Local training steps per round, T_gd.", "5; 1 in record-level schemes"),
        _declared("epochs", int, "Local epochs per round, instead of --local-steps."),
        _declared(
            "batch_size",
            int | str,
            "Records per local step, or 'all' of a client's; in record-level schemes what a step divides by.",
            "10",
        ),
        _declared("local_lr", float, "Local learning rate.", "0.1"),
        _declared("optimizer", str, "sgd or adam.", "sgd"),
        _declared(
            "balance",
            str,
            "A rare class in local training: none, downsample (each batch to equal parts, at random), oversample or"
            " weights (a weighted loss); in record-level schemes per-class, none or as-published.",
            "none; per-class",
        ),
        _declared(
            "record_rate",
            float,
            "Record-level schemes: the largest probability of a record to be drawn in a step, such as 300/804.",
        ),
        _declared(
            "prevalence",
            float | str,
            "The publicly known share of positives, such as 0.02, or of each class (0.5,0.3,0.2). With --unit patient"
            " or record the model's bias starts there, which saves many rounds. In record-level schemes negatives are"
            " drawn that much less often.",
        ),
        _declared("server_lr", float, "Server learning rate.", "1; 0.35 for fl-cs"),
        _declared("momentum", float, "Server momentum.", "0; 0.9 for fl-cs"),
        _declared(
            "precondition",
            float,
            "FL-STD of one linear layer: λ. The server shortens its steps in the strong directions of what was released"
            " so far, down to λ/(1 + λ) in the strongest. It costs no privacy.",
            "a plain step",
        ),
        _declared("outputs", int, "With --precondition: outputs of the linear layer.", "found in the model"),
        _declared(
            "downlink",
            str,
            "How weights are sent to clients: weights (floats of 32 bits) or half (16 bits: half the bytes; the server"
            " keeps all bits).",
            "weights",
        ),
        _declared(
            "clip_norm",
            float | str,
            "Bound S on a client's code: a number; 'public', measured on --public-dataset; 'median', measured on the"
            " clients as in the papers (not private). With --unit patient or record the bound on what one of them adds,"
            " in record-level schemes on one record's gradient: a number.",
        ),
        _declared(
            "unit",
            str,
            "Whom the noise protects: client (all records of one), or patient or record inside clients, whose clipped"
            " gradients clients add up. For private schemes with a linear codec; a whole client then has nothing.",
            "client",
        ),
        _declared(
            "num_units",
            float,
            "With --unit patient or record: about how many all clients hold together, a publicly known number by which"
            " sums are divided.",
        ),
        _declared(
            "unit_rate",
            float,
            "With --unit patient or record: the probability with which a client draws each in a round, by coins of its"
            " own.",
            "1: all",
        ),
        _declared(
            "max_owners_per_patient",
            int,
            "With --unit patient: at how many clients a patient has records at most; each of them clips to S over it.",
            "1",
        ),
        _declared(
            "class_weights",
            str,
            "With --unit patient or record: public weights of the classes, such as 1,5.",
            "all alike",
        ),
        _declared("noise_multiplier", float, "σ: the noise in the sum is σ·S.", "from --epsilon"),
        _declared(
            "noise",
            str,
            "integer (drawn on a grid, so that it can be masked) or continuous (float32, as in the papers).",
            "integer; continuous in record-level schemes",
        ),
        _declared(
            "bits",
            int,
            "Integer noise: bits a value, 8 to 32; more make the grid finer.",
            "as few as the sum of a round allows",
        ),
        _declared(
            "ring_bits",
            int,
            "Integer noise: bits a value, 8 to 32, with the same grid: room in the ring for sums that attackers boost."
            " It costs bytes and changes neither noise nor ε.",
            "as --bits",
        ),
        _declared("sign_step", float, "γ: the step of sign schemes.", "0.001, private 0.005"),
        _declared(
            "num_chunks",
            int,
            "P: chunks of DCT schemes. A small model gets fewer, so that each chunk sends eight values or more.",
            "200",
        ),
        _declared("l1_weight", float, "λ of FL-CS.", "1e-5"),
        _declared("max_iterations", int, "FL-CS: iterations of the solver at most.", "300"),
        _declared("tolerance", float, "FL-CS: the solver stops at this relative duality gap.", "0.001"),
        _declared("order", str, "FL-FREQ: shuffled or natural.", "shuffled"),
        _declared(
            "top_selection",
            str,
            "FL-TOP: who says which weights are kept, public (data that are public) or votes (the clients, in the first"
            " rounds, with noise in private schemes).",
            "public",
        ),
        _declared("vote_rounds", int, "FL-TOP with votes: how many rounds are votes, of --rounds in all.", "4"),
        _declared("vote_ratio", float, "FL-TOP with votes: the fraction of the model that a client marks.", "--ratio"),
        _declared(
            "vote_block",
            int,
            "FL-TOP with votes: neighbouring weights that are voted on together; 1 is a vote on each (thesis).",
            "16",
        ),
        _declared(
            "vote_noise_multiplier",
            float,
            "FL-TOP with votes: σ of the votes.",
            "from --epsilon and --vote-share, else as --noise-multiplier",
        ),
        _declared("init_steps", int, "T_init: steps on public data by which FL-TOP chooses.", "5"),
        _declared("ratio", float, "Compression ratio m/n, for schemes that compress."),
    )
}
