"""The sections of a configuration. What an experiment takes over is in classes that both inherit from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from laconic.metrics import judging
from laconic.options.declare import option
from laconic.parts import below_one, non_negative, non_negative_int, port, positive, positive_int, probability, rate


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How long a run is, where it is computed, and when it is evaluated."""

    rounds: int = option(50, "Number of rounds.", check=positive_int)
    seed: int = option(0, "Seed of everything that is random.", check=non_negative_int, identity=True)
    device: str = option("auto", "cpu, cuda, cuda:0 … or auto: CUDA if there is any.")
    engine: str = option(
        "auto",
        "one-by-one, cohort (all clients at once), linear (linear models on a CPU), sparse-first (sparse records),"
        " per-record (record-level privacy), or auto.",
        choices=("auto", "one-by-one", "cohort", "linear", "sparse-first", "per-record"),
    )
    chunk: int | None = option(None, "Cohort engines: clients trained at once.", shown="by memory", check=positive_int)
    workers: int | None = option(
        None,
        "One-by-one engine: clients trained at the same time, each by a thread on one core.",
        shown="all cores",
        check=positive_int,
    )
    threads: int | None = option(
        None, "CPU threads.", shown="one where a round is small work, else torch's own", check=positive_int
    )
    precision: str = option(
        "auto",
        "Products on a GPU, in training and evaluation: tf32 (auto) or float32; bfloat16 is tf32 with convolutions of"
        " 8 bits, for whole cohorts.",
        choices=("auto", "float32", "tf32", "bfloat16"),
    )
    profile: bool = option(False, "Say where the time of a round went.", flag="")
    eval_every: int = option(
        1, "Evaluate every so many rounds; ε is computed then, too.", check=positive_int, identity=True
    )
    patience: int | None = option(
        None,
        "Stop after so many evaluations without progress: those of the clients with --evaluate-every, else those on the"
        " held-out set.",
        check=positive_int,
        identity=True,
    )
    best_by: str = option(
        "auto",
        "What makes a round the best, and progress on the held-out set: accuracy, balanced-accuracy, auroc or loss; of"
        " quantities r2, rmse, mae or loss. auto is balanced-accuracy for yes or no with a schema, else accuracy (loss"
        " without classes).",
        choices=("auto", *(name.replace("_", "-") for name in judging())),
        identity=True,
    )
    checkpoint_seconds: float = option(10.0, "Seconds between two checkpoints.", check=non_negative)


@dataclass(frozen=True, kw_only=True)
class RunSection(RunOptions):
    track: str | None = option(
        None,
        "Follow the run in a tool: tensorboard (files in the run folder), mlflow (./mlflow.db, or MLFLOW_TRACKING_URI)"
        " or wandb (offline, or WANDB_MODE). Only what is released leaves.",
        choices=("tensorboard", "mlflow", "wandb"),
    )
    holdout: float = option(
        0.0,
        "Fraction set aside that belongs to no client: of the records, or of the clients where the data say them.",
        check=below_one,
    )


@dataclass(frozen=True, kw_only=True)
class DataSection:
    dataset: str = option(
        "digits",
        "A name from `laconic datasets`; or a folder with one .npz, .csv or .parquet file per client, or with pictures"
        " as CLIENT/CLASS/PICTURE; or one table (with --schema if it has text or gaps); or your own function as"
        " package.module:function.",
    )
    data_dir: str | None = option(None, "Where the files of a named data set are.")
    partition: str = option(
        "iid",
        "iid, dirichlet, labels or column. Data that say whose each record is go by that unless you say otherwise.",
        choices=("iid", "dirichlet", "labels", "column"),
    )
    num_clients: int | None = option(
        None, "How many clients share the data set.", shown="by the data set", check=positive_int
    )
    alpha: float = option(0.5, "Dirichlet partition: the smaller, the more skewed.", check=positive)
    labels_per_client: int = option(2, "Labels partition: classes per client.", check=positive_int)
    augment: int | None = option(
        None,
        "Pictures: so many shifted and mirrored variants of each training picture.",
        shown="1: none",
        check=positive_int,
    )
    client_column: str | None = option(
        None,
        "The column of a table that says whose each record is. Without it they are dealt out to --num-clients.",
    )
    patient_column: str | None = option(
        None,
        "The column of the user's own tables that says which person each record is about. Records of one person stay"
        " together, and --unit patient protects them together.",
    )
    target: str = option("target", "The column of the user's own data that is to be predicted.")
    classes: str | None = option(
        None,
        "Your own data: how many classes there are, such as 3; or their names, such as cat,dog; or 1 for quantities. A"
        " private run takes it from here, as the records must not decide the shape of a released model.",
        shown="those in the records",
    )
    text_column: str | None = option(None, "The column of the user's own tables that holds texts to learn from.")
    vocabulary: str | None = option(
        None,
        "Texts: how words become numbers. hash:5000 (reveals nothing), a file with one word per line, or fit:5000 (the"
        " words of most training texts: not private).",
        shown="hash:5000",
    )
    max_length: int | None = option(
        None,
        "Texts: keep the last so many words in their order, as numbers, for models such as cnn-lstm.",
        shown="none: a bag of words",
        check=positive_int,
    )
    image_size: str | None = option(
        None, "The user's own pictures: resize them to HEIGHTxWIDTH, such as 32x32.", shown="as they are"
    )
    channels: int | None = option(
        None,
        "The user's own pictures: 1 (grey) or 3 (colours). A private run takes it from here.",
        shown="as in the pictures",
        check=positive_int,
    )
    schema: str | None = option(
        None, "The TOML file that says what the columns of your table are: laconic schema init drafts one."
    )
    num_records: int | None = option(
        None, "ehr-synthetic: how many admissions to make.", shown="100000", check=positive_int
    )
    min_count: int | None = option(
        None,
        "Health records: keep codes in so many training records or more.",
        shown="by the schema",
        check=non_negative_int,
    )
    min_client_records: int | None = option(
        None,
        "Health records: leave out hospitals with fewer training records.",
        shown="by the schema",
        check=non_negative_int,
    )
    public_dataset: str | None = option(
        None,
        "Public data, for FL-TOP, --clip-norm public and --front-end-projection public: a named data set, dead-leaves"
        " (images made from the seed), or an .npz, .csv or .parquet file of your own.",
    )
    public_records: int | None = option(
        None,
        "How many public records; without --public-dataset they are set aside from the training records.",
        shown="10 of --public-dataset",
        check=positive_int,
    )


@dataclass(frozen=True, kw_only=True)
class FrontEndSection:
    name: str | None = option(
        None,
        "Fixed public features in front of the model: scattering, patches or contrast (images), fourier or pca"
        " (tables), or your own frozen module as package.module:factory. Joined by +, features are whitened together.",
        flag="--front-end",
    )
    mirror: bool | None = option(
        None, "true: features averaged over mirror images.", flag="--front-end-mirror", shown="false"
    )
    features: int | None = option(
        None, "How many features the projection keeps.", flag="--front-end-features", shown="all", check=positive_int
    )
    projection: str | None = option(
        None,
        "none (all features), public (principal components of public records) or random.",
        flag="--front-end-projection",
        shown="none",
        choices=("none", "public", "random"),
    )
    images: int | None = option(
        None,
        "How many records of --public-dataset it looks at.",
        flag="--front-end-images",
        shown="10000",
        check=positive_int,
    )
    ridge: float | None = option(
        None,
        "Whitening by eigenvalues + ridge · the largest.",
        flag="--front-end-ridge",
        shown="0.001",
        check=non_negative,
    )
    bandwidth: float | None = option(
        None,
        "The width of fourier's kernel, in units of the records.",
        flag="--front-end-bandwidth",
        shown="the median distance of public records",
        check=positive,
    )
    weights: str | None = option(
        None, "The network of contrast: a file of `laconic features train`.", flag="--front-end-weights"
    )
    patterns: int | None = option(
        None,
        "How many patterns patches learns from public images.",
        flag="--front-end-patterns",
        shown="128",
        check=positive_int,
    )
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    name: str = option(
        "auto", "A name from `laconic models`, or your own as package.module:factory.", flag="--model", shown="by data"
    )
    loss: str = option(
        "auto",
        "cross-entropy, binary-cross-entropy, mean-squared-error, or huber: squared up to a tenth of the target's range"
        " in the schema (an error of 0.2 without one), and linear beyond.",
        shown="by outputs and targets",
        choices=("auto", "cross-entropy", "binary-cross-entropy", "mean-squared-error", "huber"),
    )
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SchemeSection:
    name: str = option("fl-std", "A name from `laconic schemes`, or your own as package.module:scheme.", flag="")
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ServerSection:
    """What the server does with the steps of its rule."""

    step_decay: float = option(
        0.0,
        "The server's steps get shorter: the last one by this share of the first, below 1.",
        check=below_one,
    )
    average_last: int = option(
        1,
        "The final model is the mean of the models after so many of the last rounds.",
        check=positive_int,
    )


@dataclass(frozen=True, kw_only=True)
class TestingOptions:
    """Which groups' sums are spoilt, and who is excluded for it."""

    group_testing: bool = option(
        False,
        "With --groups: leave out groups whose noisy sum no honest clients can have, exclude who is in them too often,"
        " and go back to one sum when nothing is spoilt any more.",
        identity=True,
    )
    false_exclusions: float = option(
        1.0, "Group testing: how many honest clients a run excludes at most, on average.", check=positive, identity=True
    )
    false_alarms: float = option(
        0.001,
        "Group testing: the probability that a sum of honest clients is taken for spoilt in a round, at most.",
        check=probability,
        identity=True,
    )
    calm_rounds: int = option(
        2,
        "Group testing: after so many rounds in a row without a spoilt group there is one sum, until that is spoilt.",
        check=positive_int,
        identity=True,
    )


@dataclass(frozen=True, kw_only=True)
class AggregatorSection(TestingOptions):
    """How the server makes one code of many. Any other key is an option of the rule."""

    name: str | None = option(
        None,
        "How codes are combined: mean, median, trimmed-mean, krum, multi-krum, bulyan, geometric-median,"
        " centred-clipping, norm-bound, or your own as package.module:Class. All but the mean look at single codes, so"
        " they take schemes without noise, or --groups.",
        flag="--aggregator",
        shown="mean",
    )
    byzantine: int | None = option(
        None, "f: how many attackers of a cohort the rule is to stand.", check=non_negative_int
    )
    mixing: bool = option(False, "Nearest-neighbour mixing in front of the rule.")
    groups: int | None = option(
        None,
        "Private schemes: split each cohort at random, sum every group by itself with the whole noise, and combine the"
        " groups' means. --max-dropouts and --max-colluders are then those of a group.",
        shown="1",
        check=positive_int,
    )
    radius: float | None = option(
        None,
        "centred-clipping: how far a code may pull. norm-bound: the largest norm; by default the round's median norm.",
        check=positive,
    )
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SlackOptions:
    """Whom of a cohort the noise does not count on."""

    max_dropouts: int = option(
        0, "Clients of a cohort that may drop out while the ε still holds.", check=non_negative_int, identity=True
    )
    max_colluders: int = option(
        0, "Clients of a cohort that may collude with the adversary.", check=non_negative_int, identity=True
    )


@dataclass(frozen=True, kw_only=True)
class SamplerSection(SlackOptions):
    kind: str = option(
        "poisson",
        "poisson, fixed-size, cyclic (clients take turns, with --separation), or as-published (fixed size accounted as"
        " Poisson, for the papers' tables).",
        flag="--sampler",
        choices=("poisson", "fixed-size", "cyclic", "as-published"),
    )
    sampling_rate: float | None = option(
        None,
        "Poisson: each client's probability per round.",
        shown="0.1; 1 with --unit patient or record",
        check=rate,
    )
    cohort_size: int | None = option(
        None, "Fixed size: clients per round.", shown="a tenth of the clients", check=positive_int
    )
    separation: int | None = option(
        None,
        "Cyclic: each client takes part in every so many rounds, a fixed share of them in each. Nothing amplifies.",
        shown="10",
        check=positive_int,
    )
    max_participations: int | None = option(
        None, "How often one client may take part (Poisson and private schemes).", check=positive_int
    )


@dataclass(frozen=True, kw_only=True)
class HeldOutOptions:
    held_out: float = option(
        0.2,
        "With --evaluate-every: the fraction of its records that each client measures on and never trains on.",
        flag="--evaluate-held-out",
        check=below_one,
        identity=True,
    )


@dataclass(frozen=True, kw_only=True)
class EvaluationSection(HeldOutOptions):
    """Rounds in which clients measure the model on their own records instead of training, as noisy secure sums."""

    every: int = option(
        0,
        "Rounds divisible by this are evaluations, of --rounds in all: clients measure the model on records of their"
        " own, and the server learns the noisy mean. 0: never.",
        flag="--evaluate-every",
        check=non_negative_int,
    )
    metric: str = option(
        "accuracy",
        "What clients measure: accuracy, auroc (two classes; with accuracy and balanced accuracy) or loss.",
        flag="--evaluate-metric",
        choices=("accuracy", "auroc", "loss"),
    )
    bins: int = option(
        16, "AUROC: ranges of scores, even; more are finer and noisier.", flag="--evaluate-bins", check=positive_int
    )
    largest_loss: float = option(
        5.0, "Where the loss of a record is cut off.", flag="--evaluate-largest-loss", check=positive
    )
    noise_multiplier: float | None = option(
        None,
        "σ of the evaluations.",
        flag="--evaluation-noise-multiplier",
        shown="from --epsilon and --evaluation-share, else as --noise-multiplier",
        check=positive,
    )
    share: float | None = option(
        None,
        "The fraction of --epsilon that the evaluations alone may cost; sets their noise multiplier unless given.",
        flag="--evaluation-share",
        shown="0.1",
        check=probability,
    )


@dataclass(frozen=True, kw_only=True)
class ScalingSection:
    """How the columns of a table are scaled inside the scheme, before vectors are clipped: see `codecs.scaling`."""

    kind: str = option(
        "none",
        "Scale the columns of a table for a logistic or linear model: private (the first round is a noisy sum of means,"
        " spreads and classes, inside --epsilon), public (by their ranges alone), or none.",
        flag="--scaling",
        choices=("none", "public", "private"),
    )
    share: float | None = option(
        None,
        "The fraction of --epsilon that private scaling alone may cost; sets its noise multiplier unless given.",
        flag="--scaling-share",
        shown="0.3; it adds far less to the whole",
        check=probability,
    )
    noise_multiplier: float | None = option(
        None,
        "σ of private scaling.",
        flag="--scaling-noise-multiplier",
        shown="from --epsilon and --scaling-share, else as --noise-multiplier",
        check=positive,
    )
    rare: float = option(
        0.01, "Private scaling: a smaller share of ones than this is not lifted.", flag="", check=positive
    )
    steepest: float | None = option(
        None, "Private scaling: steps are shortened where the loss is steeper than this.", flag="", check=positive
    )
    quantities: int | None = option(
        None, "Written by the program: how many columns are quantities.", flag="", check=non_negative_int
    )
    ones: int | None = option(
        None, "Written by the program: how many ones a record has in the others.", flag="", check=non_negative_int
    )


@dataclass(frozen=True, kw_only=True)
class AutoSection:
    """What `auto` must keep to when it chooses."""

    max_rounds: int | None = option(
        None, "auto: at most so many rounds.", shown="41; 81 where ε is large", check=positive_int
    )
    max_megabytes: float | None = option(
        None, "auto: at most so many megabytes that one client sends.", shown="no limit", check=positive
    )
    max_minutes: float | None = option(
        None,
        "auto: at most so many minutes, by this machine's speed in a simulation.",
        shown="no limit",
        check=positive,
    )
    counted: int | None = option(
        None,
        "Written by the program: how many patients or records auto counted; the statement says so.",
        flag="",
        check=positive_int,
    )


@dataclass(frozen=True, kw_only=True)
class DeltaOptions:
    allow_large_delta: bool = option(
        False, "Take a δ of one over the number of clients or more; the statement says what it means."
    )


@dataclass(frozen=True, kw_only=True)
class PrivacySection(DeltaOptions):
    delta: float | None = option(
        None, "δ, below one over the number of clients (or records).", shown="1e-5", check=probability
    )
    epsilon: float | None = option(
        None, "Budget on the outsider's ε; sets σ unless --noise-multiplier is given.", check=positive
    )
    participant_epsilon: float | None = option(
        None, "Budget on the server's ε; with --epsilon it needs --max-participations.", check=positive
    )
    accountant: str | None = option(
        None, "moments (the papers'), rdp or pld (tight).", shown="the tightest", choices=("moments", "rdp", "pld")
    )
    noise_bands: int = option(
        1,
        "Above 1: noise that is correlated over so many rounds, so that most of it cancels. The server adds it"
        " (central), so no ε holds against the server. For --sampler cyclic, at most --separation.",
        check=positive_int,
    )
    vote_share: float | None = option(
        None,
        "FL-TOP with votes: the fraction of --epsilon that the votes alone may cost; sets their noise multiplier unless"
        " --vote-noise-multiplier is given.",
        shown="0.25",
        check=probability,
    )
    outlook: str | None = option(
        None, "Written by the program: the traffic light before the run, and what it says.", flag=""
    )
    clip_norm_from: str | None = option(
        None, "Written by the program: where S came from, so that a repeated run still says it.", flag=""
    )


@dataclass(frozen=True, kw_only=True)
class SumOptions:
    """How the sums of a private run are computed, and which clients drop out."""

    secagg: str = option(
        "simulated",
        "simulated (add the clients' integers in the clear) or masked (run the protocol in this process). With"
        " --noise-draws per-client they give the same sums, bit for bit.",
        key="mode",
        choices=("simulated", "masked"),
        identity=True,
    )
    noise_draws: str = option(
        "auto",
        "per-client (each draws its share), per-sum (a simulation draws the shares of a sum at once), or auto: per-sum"
        " with --secagg simulated. Only per-client has the bits of masked sums.",
        choices=("auto", "per-sum", "per-client"),
    )
    consistency: str = option(
        "plain",
        "Secure aggregation: plain, or signed (the committee signs who survived).",
        choices=("plain", "signed"),
        identity=True,
    )
    dropout_rate: float = option(
        0.0, "Fraction of each cohort that drops out, drawn from the seed.", check=below_one, identity=True
    )
    dropout_stage: str = option(
        "before-upload",
        "When: before-upload, before-consent, before-unmask, during-unmask or any.",
        choices=("before-upload", "before-consent", "before-unmask", "during-unmask", "any"),
        identity=True,
    )


@dataclass(frozen=True, kw_only=True)
class SecAggSection(SumOptions):
    pass


@dataclass(frozen=True, kw_only=True)
class AttackSection:
    """Clients that attack, in simulations. What is not set is as published: see `adversary/attacks`."""

    kind: str | None = option(
        None,
        "random-update, gradient-ascent, sign-inversion, in-backdoor, out-backdoor, label-flipping, fabricated-sizes,"
        " little-is-enough, inner-product, or your own as package.module:name.",
        flag="--attack",
    )
    fraction: float | None = option(
        None, "Malicious clients in every cohort.", flag="--attack-fraction", shown="0.1", check=below_one
    )
    malicious: str | None = option(
        None,
        "Which clients are malicious, such as 3,7, instead of --attack-fraction; cohorts are then drawn as usual.",
        flag="--attack-malicious",
    )
    boost: float | None = option(
        None,
        "Factor on what attackers send; signs in the clear cannot be boosted.",
        flag="--attack-boost",
        shown="by attack; 5000 on fl-sign-dp",
        check=positive,
    )
    boost_as: str | None = option(
        None,
        "update (a factor on the update) or step (on the learning rate).",
        flag="--attack-boost-as",
        shown="update",
        choices=("update", "step"),
    )
    scale: float | None = option(
        None,
        "random-update: σ of the noise; fabricated-sizes: factor on the claimed size; little-is-enough: z;"
        " inner-product: ε.",
        flag="--attack-scale",
        shown="200; 1000; by the cohort; 0.5",
        check=positive,
    )
    source: str | int | None = option(None, "Backdoors: the attacked class, by number or name.", flag="--attack-source")
    target: str | int | None = option(None, "Backdoors: what it is to be taken for.", flag="--attack-target")
    removed: str | int | None = option(
        None,
        "out-backdoor: classes that nobody trains on, such as bird,truck (the attacked class is with attackers alone).",
        flag="--attack-removed",
    )
    collude: bool | None = option(
        None,
        "true: attackers pool their data and send the same; false: each for itself.",
        flag="--attack-collude",
        shown="by attack",
    )
    share: str | None = option(
        None,
        "Whose data colluders pool: all malicious clients', or those of the cohort's.",
        flag="--attack-share",
        shown="all",
        choices=("all", "cohort"),
    )
    steps: str | None = option(
        None,
        "How long colluders train on what they pool: as many steps as one client, or as many passes (pool).",
        flag="--attack-steps",
        shown="client",
        choices=("client", "pool"),
    )
    omit_noise: bool | None = option(
        None,
        "Private schemes: true, attackers leave out clip and noise; false, they follow the protocol.",
        flag="--attack-omit-noise",
        shown="true",
    )
    from_round: int | None = option(
        None, "First round of the attack.", flag="--attack-from-round", shown="1", check=positive_int
    )
    until_round: int | None = option(
        None, "Last round of the attack.", flag="--attack-until-round", shown="the last", check=positive_int
    )
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FederationSection:
    """Only for federations of separate machines; what is not set has the values in `federation/server/members.py`."""

    nodes: int | None = option(None, "How many nodes the server waits for.", flag="", shown="5", check=positive_int)
    min_nodes: int | None = option(
        None, "How many must accept the offer; the others are left out.", flag="", shown="all", check=positive_int
    )
    join_timeout: float | None = option(
        None,
        "Seconds in which nodes must be there, and then answer the offer.",
        flag="",
        shown="120",
        check=positive,
    )
    round_timeout: float | None = option(
        None,
        "Seconds for each exchange of a round; a node that answers later counts as missing.",
        flag="",
        shown="600",
        check=positive,
    )
    spare_rounds: int | None = option(
        None,
        "Rounds that may be repeated after a crash. Each is charged again; the ε that is offered to the nodes, and the"
        " noise that is calibrated to --epsilon, allow for them.",
        flag="",
        shown="2",
        check=non_negative_int,
    )
    max_discarded: int | None = option(
        None,
        "Discarded rounds in a row that end the run: each is charged, and moves the model by noise alone.",
        flag="",
        shown="2",
        check=positive_int,
    )
    metrics_port: int | None = option(
        None,
        "A port of 127.0.0.1 with the server's figures for Prometheus. They show who took part: for the operator only.",
        flag="",
        shown="none",
        check=port,
    )
    log_file: str | None = option(
        None,
        "A file for the server's events as JSON lines, '-' for stderr. They show who took part: for the operator only.",
        flag="",
        shown="none",
    )
