"""The options that mean the same everywhere, and where each goes in the configuration."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import click


class Number(click.ParamType[float]):
    """A number; a fraction such as 1/60 is one too."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(value)
        except ValueError:
            pass
        try:
            return float(Fraction(value))
        except (ValueError, ZeroDivisionError):
            self.fail(f"{value!r} is not a number (write 0.0167 or 1/60)", param, ctx)


class NumberOrWord(Number):
    """A number, or a word that the command knows."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value).replace("-", "").isalpha() and str(value).lower() not in ("nan", "inf", "infinity"):
            return value
        return super().convert(value, param, ctx)


class CountOrWord(click.ParamType[Any]):
    """A whole number, or a word that the command knows."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if str(value).isalpha() else click.INT.convert(value, param, ctx)


NUMBER, NUMBER_OR_WORD, COUNT_OR_WORD = Number(), NumberOrWord(), CountOrWord()

FLAG = object()
"""The type of an option that has no value."""

# flag → (place in the configuration, type, help)
RUN_OPTIONS: dict[str, tuple[str, Any, str]] = {
    "--dataset": (
        "data.dataset",
        str,
        "digits, mnist, fashion-mnist, synthetic, diabetes130, eicu-demo, ehr-synthetic; or a folder with one .npz, "
        ".csv or .parquet file per client; or one table (with --client-column, or --schema).  [digits]",
    ),
    "--schema": ("data.schema", str, "Health records: the TOML file that says what the table's columns are."),
    "--num-records": ("data.num_records", int, "ehr-synthetic: how many admissions to make.  [100000]"),
    "--min-count": (
        "data.min_count",
        int,
        "Health records: keep codes in so many training records or more.  [by the schema]",
    ),
    "--min-client-records": (
        "data.min_client_records",
        int,
        "Health records: leave out hospitals with fewer training records.  [by the schema]",
    ),
    "--data-dir": ("data.data_dir", str, "Where the files of the data set are."),
    "--partition": ("data.partition", str, "iid, dirichlet, labels or column.  [iid]"),
    "--num-clients": ("data.num_clients", int, "How many clients share the data set."),
    "--alpha": ("data.alpha", NUMBER, "Dirichlet partition: the smaller, the more skewed.  [0.5]"),
    "--labels-per-client": ("data.labels_per_client", int, "Labels partition: classes per client.  [2]"),
    "--client-column": ("data.client_column", str, "The column of a table that says whose each record is."),
    "--target": ("data.target", str, "The column of the user's own data that is to be predicted.  [target]"),
    "--public-dataset": (
        "data.public_dataset",
        str,
        "Public data, for FL-TOP, --clip-norm public and --front-end-projection public: a named data set, "
        "dead-leaves (images made from the seed), or an .npz, .csv or .parquet file of your own.",
    ),
    "--public-records": (
        "data.public_records",
        int,
        "How many public records; without --public-dataset they are set aside from the training records.  [10]",
    ),
    "--front-end": ("front_end.name", str, "scattering: fixed public features of images, in front of the model."),
    "--front-end-mirror": ("front_end.mirror", bool, "true: features averaged over mirror images.  [false]"),
    "--front-end-features": ("front_end.features", int, "How many features the projection keeps."),
    "--front-end-projection": (
        "front_end.projection",
        str,
        "none (all features), public (principal components of public images) or random.  [none]",
    ),
    "--front-end-images": ("front_end.images", int, "How many images of --public-dataset it looks at.  [10000]"),
    "--front-end-ridge": ("front_end.ridge", NUMBER, "Whitening by eigenvalues + ridge · the largest.  [0.001]"),
    "--model": (
        "model.name",
        str,
        "cnn, mlp, logistic, … (`laconic models`), or your own as package.module:factory.  [by data set]",
    ),
    "--loss": ("model.loss", str, "cross-entropy, binary-cross-entropy, mean-squared-error.  [by data set]"),
    "--rounds": ("run.rounds", int, "Number of rounds.  [50]"),
    "--seed": ("run.seed", int, "Seed of everything that is random.  [0]"),
    "--device": ("run.device", str, "cpu, cuda, cuda:0 … or auto.  [auto]"),
    "--engine": ("run.engine", str, "one-by-one, cohort (all clients at once), sparse-first or auto.  [auto]"),
    "--chunk": ("run.chunk", int, "Cohort engines: clients trained at once.  [by memory]"),
    "--workers": ("run.workers", int, "One-by-one engine: clients trained at the same time, a core each.  [all cores]"),
    "--precision": ("run.precision", str, "Products on a GPU: tf32 or float32.  [tf32]"),
    "--threads": ("run.threads", int, "CPU threads.  [all]"),
    "--eval-every": ("run.eval_every", int, "Evaluate every so many rounds.  [1]"),
    "--holdout": ("run.holdout", NUMBER, "Fraction of the training records that belongs to no client.  [0]"),
    "--patience": ("run.patience", int, "Stop after so many evaluations without progress on the held-out set."),
    "--best-by": (
        "run.best_by",
        str,
        "What makes a round the best: accuracy, balanced-accuracy, auroc or loss.  [accuracy, balanced-accuracy for "
        "health records]",
    ),
    "--checkpoint-seconds": ("run.checkpoint_seconds", NUMBER, "Seconds between two checkpoints.  [10]"),
    "--local-steps": (
        "scheme.local_steps",
        int,
        "Local training steps per round, T_gd.  [5; 1 in record-level schemes]",
    ),
    "--epochs": ("scheme.epochs", int, "Local epochs per round, instead of --local-steps."),
    "--batch-size": (
        "scheme.batch_size",
        COUNT_OR_WORD,
        "Records per local step, or 'all' of a client's; in record-level schemes what a step divides by.  [10]",
    ),
    "--local-lr": ("scheme.local_lr", NUMBER, "Local learning rate.  [0.1]"),
    "--optimizer": ("scheme.optimizer", str, "sgd or adam.  [sgd]"),
    "--balance": (
        "scheme.balance",
        str,
        "A rare class in local training: none, downsample, oversample or weights; in record-level schemes per-class, "
        "none or as-published.  [none; per-class]",
    ),
    "--record-rate": (
        "scheme.record_rate",
        NUMBER,
        "Record-level schemes: the largest probability of a record to be drawn in a step, such as 300/804.",
    ),
    "--prevalence": (
        "scheme.prevalence",
        NUMBER,
        "Record-level schemes: the share of positives as publicly known; negatives are drawn that much less often.",
    ),
    "--server-lr": ("scheme.server_lr", NUMBER, "Server learning rate.  [1]"),
    "--momentum": ("scheme.momentum", NUMBER, "Server momentum.  [0]"),
    "--downlink": (
        "scheme.downlink",
        str,
        "How weights are sent to clients: weights (floats of 32 bits) or half (16 bits: half the bytes).  [weights]",
    ),
    "--clip-norm": (
        "scheme.clip_norm",
        NUMBER_OR_WORD,
        "Bound S on a client's code: a number; 'public', measured on "
        "--public-dataset; 'median', measured on the clients as in the papers (not private).",
    ),
    "--noise-multiplier": ("scheme.noise_multiplier", NUMBER, "σ: the noise in the sum is σ·S."),
    "--noise": (
        "scheme.noise",
        str,
        "integer (drawn on a grid, so that it can be masked) or continuous (float32, as in the papers).  [integer]",
    ),
    "--bits": ("scheme.bits", int, "Integer noise: bits a value.  [as few as the sum of a round allows]"),
    "--sign-step": ("scheme.sign_step", NUMBER, "γ: the step of sign schemes.  [0.001, private 0.005]"),
    "--num-chunks": ("scheme.num_chunks", int, "P: chunks of DCT schemes.  [200]"),
    "--l1-weight": ("scheme.l1_weight", NUMBER, "λ of FL-CS.  [1e-5]"),
    "--max-iterations": ("scheme.max_iterations", int, "FL-CS: iterations of the solver at most.  [300]"),
    "--tolerance": ("scheme.tolerance", NUMBER, "FL-CS: the solver stops at this relative duality gap.  [0.001]"),
    "--order": ("scheme.order", str, "FL-FREQ: shuffled or natural.  [shuffled]"),
    "--init-steps": ("scheme.init_steps", int, "T_init: steps on public data by which FL-TOP chooses.  [5]"),
    "--ratio": ("scheme.ratio", NUMBER, "Compression ratio m/n, for schemes that compress."),
    "--sampler": (
        "sampler.kind",
        str,
        "poisson, fixed-size, or as-published (fixed size accounted as Poisson, for the papers' tables).  [poisson]",
    ),
    "--sampling-rate": ("sampler.sampling_rate", NUMBER, "Poisson: each client's probability per round.  [0.1]"),
    "--cohort-size": ("sampler.cohort_size", int, "Fixed size: clients per round."),
    "--max-participations": ("sampler.max_participations", int, "How often one client may take part."),
    "--max-dropouts": ("sampler.max_dropouts", int, "Clients of a cohort that may vanish without harm to the ε.  [0]"),
    "--max-colluders": ("sampler.max_colluders", int, "Clients of a cohort that may side with the adversary.  [0]"),
    "--secagg": (
        "secagg.mode",
        str,
        "simulated (add the clients' integers in the open) or masked (run the protocol in this process): the same "
        "sums, bit for bit.  [simulated]",
    ),
    "--consistency": ("secagg.consistency", str, "Secure aggregation: plain or signed.  [plain]"),
    "--dropout-rate": ("secagg.dropout_rate", NUMBER, "Fraction of each cohort that is made to vanish.  [0]"),
    "--dropout-stage": (
        "secagg.dropout_stage",
        str,
        "When: before-upload, before-consent, before-unmask, during-unmask or any.  [before-upload]",
    ),
    "--epsilon": ("privacy.epsilon", NUMBER, "Budget on the outsider's ε; sets σ unless --noise-multiplier is given."),
    "--participant-epsilon": ("privacy.participant_epsilon", NUMBER, "Budget on the server's ε."),
    "--delta": ("privacy.delta", NUMBER, "δ, below one over the number of clients (or records).  [1e-5]"),
    "--allow-large-delta": ("privacy.allow_large_delta", FLAG, "Take a larger δ; the statement says what it means."),
    "--accountant": ("privacy.accountant", str, "moments (the papers'), rdp or pld (tight).  [the tightest]"),
}


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add all of `RUN_OPTIONS`, `--set` and `--model-option` to a command."""
    command = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Any key of the configuration.")(
        command
    )
    command = click.option(
        "--model-option", "model_options", multiple=True, metavar="KEY=VALUE", help="An option of the model's factory."
    )(command)
    for flag, (path, kind, text) in reversed(RUN_OPTIONS.items()):
        how: dict[str, Any] = {"is_flag": True} if kind is FLAG else {"type": kind}
        command = click.option(flag, path.replace(".", "__"), default=None, help=text, **how)(command)
    return command


def config_values(options: dict[str, Any], sets: tuple[str, ...], model_options: tuple[str, ...]) -> dict[str, Any]:
    """The values that the user gave, by their place in the configuration; --set wins over the flags."""
    from laconic.errors import ConfigError
    from laconic.settings.config import parse_set, parse_value

    values = {name.replace("__", "."): value for name, value in options.items() if value is not None}
    for text in model_options:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--model-option {text}: write it as key=value")
        values[f"model.{key}"] = parse_value(value)
    return values | dict(parse_set(text) for text in sets)


def requested_config(what: str | None, values: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The configuration from a scheme's name or a TOML file plus the given values; and all values asked for."""
    from laconic.settings.config import RunConfig, read_toml

    asked: dict[str, Any] = {}
    if what is not None and (what.endswith(".toml") or "/" in what):
        for section, keys in RunConfig.from_dict(read_toml(what)).to_dict().items():
            asked |= {f"{section}.{key}": value for key, value in keys.items()}
    elif what is not None:
        from laconic.catalogue import scheme_entry

        scheme_entry(what)
        asked["scheme.name"] = what.lower()
    asked |= values
    return RunConfig().with_values(asked), asked
