"""Every scheme, one short declaration each. Start here.

A round of any of them: the server sends the weights, each client of the cohort trains (`train`), compresses its
update (`codec`), bounds it (`clip`), adds its share of the noise (`noise`); the codes are summed (`secure_sum`) and
the server turns their mean into a change of the weights (`rule`). What is not named is an identity part. A private
version is the same declaration with a bound and noise, under secure aggregation: `private(fl_top(…), clip_norm=0.5)`,
or by name `fl_top_dp`. `SCHEMES`, at the end, has them by the names of the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import laconic.aggregate.names  # noqa: F401 - a node that reads a scheme must know every rule
from laconic.codecs.base import Sign
from laconic.codecs.dct import LowPassDCT
from laconic.codecs.solvers import Fista
from laconic.codecs.subset import FixedRandomSubset, NewRandomSubset, Subset, TopSubset
from laconic.codecs.votes import Ballot, VotedSubset
from laconic.entry import SchemeEntry
from laconic.errors import ConfigError
from laconic.parts import one_of
from laconic.privacy.accounting.record_sampling import record_sampler
from laconic.private import PrivateScheme as PrivateScheme
from laconic.private import check_names
from laconic.private import private as private
from laconic.registry import Registry
from laconic.scheme import Scheme
from laconic.server.rules import Average, ErrorFeedback, MajorityVote, ServerRule
from laconic.server.steps import Preconditioned
from laconic.train.local import LocalDPSGD, LocalSGD

TOP_SELECTIONS = ("public", "votes")
VOTE_ROUNDS, VOTE_BLOCK = 4, 16
"""How many rounds are votes, and the weights that are voted on together: measured in docs/results/votes.md."""


def _local_sgd(declared: Callable[..., Scheme], options: dict[str, Any]) -> LocalSGD:
    """Local training with the options that the scheme itself does not take."""
    check_names(options, declared)
    return LocalSGD(**options)


def fl_std(
    *,
    server_lr: float = 1.0,
    momentum: float = 0.0,
    precondition: float | None = None,
    outputs: int | None = None,
    **train: Any,
) -> Scheme:
    """FL-STD: every client sends its whole update; the server averages by data size.

    w ← w + Σ_k |D_k|/|D|·Δw_k

    Args:
        server_lr: η_G, the server's step.
        momentum: ρ of the server: v ← ρ·v + mean, w ← w + η_G·v.
        precondition: λ of `Preconditioned`, for a model that is one linear layer; None is the plain step.
        outputs: outputs of that layer, which ends in its bias; `laconic.run` finds them.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> scheme = laconic.schemes.fl_std(local_lr=0.1, local_steps=5)
        >>> scheme.name, scheme.private
        ('fl-std', False)

    References:
        Thesis Alg. 1; EuroS&P'21 Alg. 1; McMahan et al. (AISTATS 2017), who call it FedAvg.
    """
    return Scheme(
        name="fl-std",
        train=_local_sgd(fl_std, train),
        rule=_step_of_layer(precondition, outputs, server_lr=server_lr, momentum=momentum),
        weighting="data-size",
    )


def _step_of_layer(damping: float | None, outputs: int | None, *, server_lr: float, momentum: float) -> ServerRule:
    """`Preconditioned` where it is asked for, else `Average`."""
    if damping is None:
        if outputs is not None:
            raise ConfigError("⟨outputs⟩ means nothing without ⟨precondition⟩: leave it out")
        return Average(server_lr=server_lr, momentum=momentum)
    if outputs is None:
        raise ConfigError("precondition needs outputs: how many the linear layer has")
    return Preconditioned(outputs=outputs, damping=damping, server_lr=server_lr, momentum=momentum)


fl_std_dp = PrivateScheme(fl_std)


def centralized(**train: Any) -> Scheme:
    """CENTRALIZED: plain SGD on the pooled records, the reference of every federation. Nothing is sent.

    Args:
        **train: training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.centralized(local_lr=0.1, epochs=1, batch_size=10).pooled
        True
    """
    return Scheme(name="centralized", train=_local_sgd(centralized, train), pooled=True)


def fl_sign(*, sign_step: float = 0.001, momentum: float = 0.0, **train: Any) -> Scheme:
    """FL-SIGN: one bit a weight, the sign of the update; the server takes a majority vote.

    w ← w + γ·sign(Σ_k sign(Δw_k))

    Args:
        sign_step: γ, by which every weight moves in a round.
        momentum: ρ of the server.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_sign(local_lr=0.1, local_steps=5).codec
        Sign()

    References:
        Thesis Alg. 3; Bernstein et al. (ICML 2018) for the vote.
    """
    return Scheme(
        name="fl-sign",
        train=_local_sgd(fl_sign, train),
        codec=Sign(),
        rule=MajorityVote(sign_step=sign_step, momentum=momentum),
    )


def fl_sign_dp(
    *,
    noise_multiplier: float | None = None,
    sign_step: float = 0.005,
    bits: int | None = None,
    ring_bits: int | None = None,
    **options: Any,
) -> Scheme:
    """FL-SIGN-DP: an integer drawn around each sign, with sensitivity √n.

    w ← w + γ·sign(Σ_k DG(sign(Δw_k), √n·σ/√|K|))

    Args:
        noise_multiplier: σ; open if None: `laconic.run` then calibrates it to its `epsilon`.
        sign_step: γ, by which every weight moves in a round.
        bits: bits of a value; as few as the sum allows, unless given.
        ring_bits: bits of the ring in which sums are taken, where it shall have room to spare.
        **options: those of `fl_sign`.

    Examples:
        >>> laconic.schemes.fl_sign_dp(noise_multiplier=1.5, local_lr=0.1, local_steps=5).private
        True

    References:
        Thesis Alg. 9.
    """
    check_names(options, fl_sign, fl_sign_dp)
    plain = fl_sign(sign_step=sign_step, **options)
    return private(plain, noise_multiplier=noise_multiplier, bits=bits, ring_bits=ring_bits)


def fl_std_record_dp(
    *,
    clip_norm: float,
    noise_multiplier: float | None = None,
    record_rate: float,
    batch_size: int,
    prevalence: float | None = None,
    balance: str = "per-class",
    noise: str = "continuous",
    local_steps: int = 1,
    server_lr: float = 1.0,
    momentum: float = 0.0,
    **train: Any,
) -> Scheme:
    """FL-STANDARD-DP at record level: clients train by DP-SGD and send the update itself; all clients count alike.

    Δw_k = DPSGD(D_k, w),   w ← w + 1/|K|·Σ_k Δw_k

    Args:
        clip_norm: S, the bound on one record's gradient.
        noise_multiplier: σ of a step; open if None: `laconic.run` then calibrates it to its `epsilon`.
        record_rate: the largest probability with which a record is drawn in a step.
        batch_size: what a step divides by: a public number, about the records that it draws.
        prevalence: the publicly known fraction of positives, for `balance="per-class"`.
        balance: 'per-class' draws the frequent class less often; 'none' draws all alike; 'as-published' is the paper's.
        noise: 'continuous' (float32, as in the papers) or 'integer' (drawn on a grid, as federations need it).
        local_steps: steps of a client in a round.
        server_lr: η_G, the server's step.
        momentum: ρ of the server.
        **train: `local_lr` and `optimizer`; see `LocalDPSGD`.

    Examples:
        >>> scheme = laconic.schemes.fl_std_record_dp(
        ...     clip_norm=1.0, noise_multiplier=2.0, record_rate=0.2, batch_size=20, balance="none", local_lr=0.5
        ... )
        >>> scheme.record_level
        True

    References:
        CHIL'21 Alg. 5 and 6; Abadi et al. (CCS 2016) for DP-SGD.
    """
    records = record_sampler(balance, batch_size=batch_size, record_rate=record_rate, prevalence=prevalence)
    return Scheme(
        name="fl-std-record-dp",
        train=LocalDPSGD(
            clip_norm=clip_norm,
            noise_multiplier=noise_multiplier,
            records=records,
            noise=noise,
            local_steps=local_steps,
            **train,
        ),
        rule=Average(server_lr=server_lr, momentum=momentum),
    )


def fl_sign_record_dp(*, sign_step: float = 0.005, momentum: float = 0.0, **options: Any) -> Scheme:
    """FL-SIGN-DP at record level: clients train by DP-SGD and send the signs of the update.

    Δw_k = DPSGD(D_k, w),   w ← w + γ·sign(Σ_k sign(Δw_k))

    Args:
        sign_step: γ, by which every weight moves in a round.
        momentum: ρ of the server.
        **options: those of `fl_std_record_dp`.

    Examples:
        >>> scheme = laconic.schemes.fl_sign_record_dp(
        ...     clip_norm=1.0, noise_multiplier=2.0, record_rate=0.2, batch_size=20, balance="none", local_lr=0.5
        ... )
        >>> scheme.record_level, scheme.codec
        (True, Sign())

    References:
        CHIL'21 Alg. 4 and 6.
    """
    return replace(
        fl_std_record_dp(**options),
        name="fl-sign-record-dp",
        codec=Sign(),
        rule=MajorityVote(sign_step=sign_step, momentum=momentum),
    )


def sign_sgd(*, sign_step: float = 0.001, momentum: float = 0.0, **train: Any) -> Scheme:
    """SignSGD: every client, every round, the signs of one minibatch gradient up and the vote's signs down.

    Args:
        sign_step: γ, by which every weight moves in a round.
        momentum: ρ of the server.
        **train: local training, without steps; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.sign_sgd(local_lr=0.1, batch_size=32).downlink
        'signs'

    References:
        Thesis section 4.1.1; Bernstein et al. (ICML 2018).
    """
    plain = fl_sign(sign_step=sign_step, momentum=momentum, local_steps=1, **train)
    return replace(plain, name="sign-sgd", downlink="signs")


def sign_sgd_dp(
    *,
    noise_multiplier: float | None = None,
    sign_step: float = 0.005,
    bits: int | None = None,
    ring_bits: int | None = None,
    **options: Any,
) -> Scheme:
    """SignSGD-DP: SignSGD with an integer drawn around each sign, as in FL-SIGN-DP.

    Args:
        noise_multiplier: σ; open if None: `laconic.run` then calibrates it to its `epsilon`.
        sign_step: γ, by which every weight moves in a round.
        bits: bits of a value; as few as the sum allows, unless given.
        ring_bits: bits of the ring in which sums are taken, where it shall have room to spare.
        **options: those of `sign_sgd`.

    Examples:
        >>> laconic.schemes.sign_sgd_dp(noise_multiplier=1.5, local_lr=0.1).name
        'sign-sgd-dp'

    References:
        As thesis Alg. 9.
    """
    check_names(options, sign_sgd, sign_sgd_dp)
    plain = sign_sgd(sign_step=sign_step, **options)
    return private(plain, noise_multiplier=noise_multiplier, bits=bits, ring_bits=ring_bits)


def fl_rnd(*, ratio: float, server_lr: float = 1.0, momentum: float = 0.0, **train: Any) -> Scheme:
    """FL-RND: a random subset of the update, new in each round, the same for all clients.

    Args:
        ratio: how much of the update is sent, in (0, 1].
        server_lr: η_G, the server's step.
        momentum: ρ of the server: v ← ρ·v + mean, w ← w + η_G·v.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_rnd(ratio=0.1, local_lr=0.1, local_steps=5).codec.code_size(1000)
        100

    References:
        Thesis Alg. 5.
    """
    return Scheme(
        name="fl-rnd",
        train=_local_sgd(fl_rnd, train),
        codec=NewRandomSubset(ratio=ratio, train_only_kept=False),
        rule=Average(server_lr=server_lr, momentum=momentum),
        weighting="data-size",
    )


fl_rnd_dp = PrivateScheme(fl_rnd)


def fl_freq(
    *,
    ratio: float,
    num_chunks: int = 200,
    order: str = "shuffled",
    server_lr: float = 1.0,
    momentum: float = 0.0,
    **train: Any,
) -> Scheme:
    """FL-FREQ: the low DCT frequencies of the update; the server pads with zeros and inverts.

    Args:
        ratio: how many of the frequencies are sent, in (0, 1].
        num_chunks: P: the update is cut into so many pieces, each with a DCT of its own.
        order: 'shuffled' or 'natural': in which order the weights stand before they are cut.
        server_lr: η_G, the server's step.
        momentum: ρ of the server: v ← ρ·v + mean, w ← w + η_G·v.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_freq(ratio=0.1, num_chunks=5, local_lr=0.1, local_steps=5).name
        'fl-freq'

    References:
        Thesis Alg. 6.
    """
    return Scheme(
        name="fl-freq",
        train=_local_sgd(fl_freq, train),
        codec=LowPassDCT(ratio=ratio, num_chunks=num_chunks, order=order),
        rule=Average(server_lr=server_lr, momentum=momentum),
        weighting="data-size",
    )


fl_freq_dp = PrivateScheme(fl_freq)


def fl_cs(
    *,
    ratio: float,
    num_chunks: int = 200,
    l1_weight: float = 1e-5,
    max_iterations: int = 300,
    tolerance: float = 1e-3,
    momentum: float = 0.9,
    server_lr: float = 0.35,
    **train: Any,
) -> Scheme:
    """FL-CS: the low DCT frequencies of the shuffled update; the server solves for a sparse one, with error feedback.

    s = argmin ½‖e − Θs‖² + λ‖s‖₁ for the accumulated code e

    Args:
        ratio: how many of the frequencies are sent, in (0, 1].
        num_chunks: P: the update is cut into so many pieces, each with a DCT of its own.
        l1_weight: λ: larger means sparser.
        max_iterations: steps of the solver (FISTA) at most.
        tolerance: the solver stops when it changes less than this.
        momentum: ρ of the accumulated code.
        server_lr: η_G, the server's step.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_cs(ratio=0.1, num_chunks=5, local_lr=0.1, local_steps=5).rule
        ErrorFeedback(server_lr=0.35, momentum=0.9)

    References:
        EuroS&P'21 Alg. 3; thesis Alg. 4; Rothchild et al. (ICML 2020) for sketches with error feedback.
    """
    return Scheme(
        name="fl-cs",
        train=_local_sgd(fl_cs, train),
        codec=LowPassDCT(
            ratio=ratio,
            num_chunks=num_chunks,
            solver=Fista(l1_weight=l1_weight, max_iterations=max_iterations, tolerance=tolerance),
        ),
        rule=ErrorFeedback(momentum=momentum, server_lr=server_lr),
    )


fl_cs_dp = PrivateScheme(fl_cs)


def fl_basic(*, ratio: float, server_lr: float = 1.0, momentum: float = 0.0, **train: Any) -> Scheme:
    """FL-BASIC: a random subset, new in each round, and only its weights are trained.

    Args:
        ratio: how much of the update is sent, in (0, 1].
        server_lr: η_G, the server's step.
        momentum: ρ of the server: v ← ρ·v + mean, w ← w + η_G·v.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_basic(ratio=0.1, local_lr=0.1, local_steps=5).codec.code_size(1000)
        100

    References:
        Thesis section 4.2.2.
    """
    scheme = fl_rnd(ratio=ratio, server_lr=server_lr, momentum=momentum, **train)
    return replace(scheme, name="fl-basic", codec=NewRandomSubset(ratio=ratio, train_only_kept=True))


fl_basic_dp = PrivateScheme(fl_basic)


def fl_bas_2(*, ratio: float, server_lr: float = 1.0, momentum: float = 0.0, **train: Any) -> Scheme:
    """FL-BAS-2: a random subset, new in each round; all weights are trained (it is FL-RND).

    Args:
        ratio: how much of the update is sent, in (0, 1].
        server_lr: η_G, the server's step.
        momentum: ρ of the server: v ← ρ·v + mean, w ← w + η_G·v.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_bas_2(ratio=0.1, local_lr=0.1, local_steps=5).codec.code_size(1000)
        100

    References:
        UAI'21 Table 8.
    """
    return replace(fl_rnd(ratio=ratio, server_lr=server_lr, momentum=momentum, **train), name="fl-bas-2")


fl_bas_2_dp = PrivateScheme(fl_bas_2)


def fl_bas_3(*, ratio: float, server_lr: float = 1.0, momentum: float = 0.0, **train: Any) -> Scheme:
    """FL-BAS-3: a fixed random subset, and only its weights are trained.

    Args:
        ratio: how much of the update is sent, in (0, 1].
        server_lr: η_G, the server's step.
        momentum: ρ of the server: v ← ρ·v + mean, w ← w + η_G·v.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_bas_3(ratio=0.1, local_lr=0.1, local_steps=5).codec.code_size(1000)
        100

    References:
        UAI'21 Table 8.
    """
    scheme = fl_rnd(ratio=ratio, server_lr=server_lr, momentum=momentum, **train)
    return replace(scheme, name="fl-bas-3", codec=FixedRandomSubset(ratio=ratio, train_only_kept=True))


fl_bas_3_dp = PrivateScheme(fl_bas_3)


def fl_bas_4(*, ratio: float, server_lr: float = 1.0, momentum: float = 0.0, **train: Any) -> Scheme:
    """FL-BAS-4: a fixed random subset; all weights are trained.

    Args:
        ratio: how much of the update is sent, in (0, 1].
        server_lr: η_G, the server's step.
        momentum: ρ of the server: v ← ρ·v + mean, w ← w + η_G·v.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_bas_4(ratio=0.1, local_lr=0.1, local_steps=5).codec.code_size(1000)
        100

    References:
        UAI'21 Table 8.
    """
    scheme = fl_rnd(ratio=ratio, server_lr=server_lr, momentum=momentum, **train)
    return replace(scheme, name="fl-bas-4", codec=FixedRandomSubset(ratio=ratio, train_only_kept=False))


fl_bas_4_dp = PrivateScheme(fl_bas_4)


def fl_top(
    *,
    ratio: float,
    top_selection: str = "public",
    init_steps: int = 5,
    vote_rounds: int | None = None,
    vote_ratio: float | None = None,
    vote_block: int | None = None,
    vote_noise_multiplier: float | None = None,
    server_lr: float = 1.0,
    momentum: float = 0.0,
    **train: Any,
) -> Scheme:
    """FL-TOP: only the K weights that matter most are ever trained or sent, in either direction.

    Which they are, public data say, or the clients' own votes: in the first rounds each marks its largest |Δw|.

    Args:
        ratio: how many of the weights are kept, in (0, 1]: K = ratio·n.
        top_selection: 'public': training on public records chooses the weights; 'votes': the clients do, privately.
        init_steps: training steps on the public records, before the choice.
        vote_rounds: how many of the rounds are votes (4 unless given).
        vote_ratio: the share of the weights that a client marks; `ratio` unless given.
        vote_block: weights that are voted on together (16 unless given).
        vote_noise_multiplier: σ of the votes, for the private version.
        server_lr: η_G, the server's step.
        momentum: ρ of the server.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_top(ratio=0.1, local_lr=0.1, local_steps=5).codec.code_size(1000)
        100

    References:
        Thesis Alg. 7, and section 5.4.3 for the votes; the UAI'21 paper.
    """
    if top_selection == "votes":
        codec: Subset = _voted(ratio, vote_rounds, vote_ratio, vote_block, vote_noise_multiplier)
    else:
        one_of(TOP_SELECTIONS, top_selection=top_selection)
        _no_votes(vote_rounds, vote_ratio, vote_block, vote_noise_multiplier)
        codec = TopSubset(ratio=ratio, train_only_kept=True, init_steps=init_steps)
    scheme = fl_rnd(ratio=ratio, server_lr=server_lr, momentum=momentum, **train)
    return replace(scheme, name="fl-top", codec=codec)


def _voted(
    ratio: float, rounds: int | None, marked: float | None, block: int | None, noise_multiplier: float | None
) -> VotedSubset:
    """The K weights with most votes. Unless it is said otherwise, as much is marked as is kept."""
    return VotedSubset(
        ratio=ratio,
        train_only_kept=True,
        ballot=Ballot(ratio=ratio if marked is None else marked, block=VOTE_BLOCK if block is None else block),
        rounds=VOTE_ROUNDS if rounds is None else rounds,
        noise_multiplier=noise_multiplier,
    )


def _no_votes(*given: float | None) -> None:
    flags = ("⟨vote-rounds⟩", "⟨vote-ratio⟩", "⟨vote-block⟩", "⟨vote-noise-multiplier⟩")
    idle = [flag for flag, value in zip(flags, given, strict=True) if value is not None]
    if idle:
        raise ConfigError(f"{', '.join(idle)} means nothing without votes: add ⟨top-selection⟩ votes")


fl_top_dp = PrivateScheme(fl_top)


def fl_top_bis(
    *,
    ratio: float,
    top_selection: str = "public",
    init_steps: int = 5,
    vote_rounds: int | None = None,
    vote_ratio: float | None = None,
    vote_block: int | None = None,
    vote_noise_multiplier: float | None = None,
    server_lr: float = 1.0,
    momentum: float = 0.0,
    **train: Any,
) -> Scheme:
    """FL-TOP-BIS: as FL-TOP, but clients train all weights before they send the K.

    Args:
        ratio: how many of the weights are kept, in (0, 1]: K = ratio·n.
        top_selection: 'public': training on public records chooses the weights; 'votes': the clients do, privately.
        init_steps: training steps on the public records, before the choice.
        vote_rounds: how many of the rounds are votes (4 unless given).
        vote_ratio: the share of the weights that a client marks; `ratio` unless given.
        vote_block: weights that are voted on together (16 unless given).
        vote_noise_multiplier: σ of the votes, for the private version.
        server_lr: η_G, the server's step.
        momentum: ρ of the server.
        **train: local training; see `LocalSGD`.

    Examples:
        >>> laconic.schemes.fl_top_bis(ratio=0.1, local_lr=0.1, local_steps=5).codec.train_only_kept
        False

    References:
        UAI'21 Table 8.
    """
    scheme = fl_top(
        ratio=ratio,
        top_selection=top_selection,
        init_steps=init_steps,
        vote_rounds=vote_rounds,
        vote_ratio=vote_ratio,
        vote_block=vote_block,
        vote_noise_multiplier=vote_noise_multiplier,
        server_lr=server_lr,
        momentum=momentum,
        **train,
    )
    assert isinstance(scheme.codec, Subset)
    return replace(scheme, name="fl-top-bis", codec=replace(scheme.codec, train_only_kept=False))


fl_top_bis_dp = PrivateScheme(fl_top_bis)


_FULL, _KEPT = "4·n bytes", "4·K bytes"
_STD = SchemeEntry(fl_std, "thesis Alg. 1", _FULL, _FULL)
_SIGN = SchemeEntry(fl_sign, "thesis Alg. 3", "n bits", _FULL, linear=False)
_SGD = SchemeEntry(
    sign_sgd,
    "thesis section 4.1.1",
    "n bits",
    "n bits",
    linear=False,
    without=("local_steps", "epochs", "downlink"),
)
_RND = SchemeEntry(fl_rnd, "thesis Alg. 5", "4·m bytes", _FULL)
_FREQ = SchemeEntry(fl_freq, "thesis Alg. 6", "4·m bytes", _FULL)
_CS = SchemeEntry(fl_cs, "EuroS&P Alg. 3, thesis Alg. 4", "4·m bytes", _FULL)
_BASIC = SchemeEntry(fl_basic, "thesis section 4.2.2", _KEPT, _FULL)
_BAS_2 = SchemeEntry(fl_bas_2, "UAI Table 8", _KEPT, _FULL)
_BAS_3 = SchemeEntry(fl_bas_3, "UAI Table 8", _KEPT, _KEPT)
_BAS_4 = SchemeEntry(fl_bas_4, "UAI Table 8", _KEPT, _KEPT)
_TOP = SchemeEntry(fl_top, "thesis Alg. 7", _KEPT, f"{_KEPT}, the set once")
_STD_RECORD = SchemeEntry(fl_std_record_dp, "CHIL Alg. 5 and 6", _FULL, _FULL, record_level=True)
_TOP_BIS = SchemeEntry(fl_top_bis, "UAI Table 8", _KEPT, f"{_KEPT}, the set once")


_ON_INTEGERS = {_FULL: "b·n bits", "n bits": "b·n bits", "4·m bytes": "b·m bits", _KEPT: "b·K bits"}


def _dp(base: SchemeEntry, build: Callable[..., Scheme], origin: str) -> SchemeEntry:
    return SchemeEntry(build, origin, _ON_INTEGERS[base.up], base.down, base.linear, base, without=base.without)


SCHEMES: Registry[SchemeEntry] = Registry(
    "scheme",
    {
        "fl-std": _STD,
        "fl-std-dp": _dp(_STD, fl_std_dp, "thesis Alg. 10"),
        "fl-sign": _SIGN,
        "fl-sign-dp": _dp(_SIGN, fl_sign_dp, "thesis Alg. 9"),
        "fl-std-record-dp": _STD_RECORD,
        "fl-sign-record-dp": SchemeEntry(
            fl_sign_record_dp,
            "CHIL Alg. 4 and 6",
            "n bits",
            _FULL,
            linear=False,
            base=_STD_RECORD,
            record_level=True,
            without=("server_lr",),
        ),
        "sign-sgd": _SGD,
        "sign-sgd-dp": _dp(_SGD, sign_sgd_dp, "as thesis Alg. 9"),
        "fl-rnd": _RND,
        "fl-rnd-dp": _dp(_RND, fl_rnd_dp, "thesis Alg. 12"),
        "fl-freq": _FREQ,
        "fl-freq-dp": _dp(_FREQ, fl_freq_dp, "thesis Alg. 13"),
        "fl-cs": _CS,
        "fl-cs-dp": _dp(_CS, fl_cs_dp, "EuroS&P Alg. 4, thesis Alg. 11"),
        "fl-basic": _BASIC,
        "fl-basic-dp": _dp(_BASIC, fl_basic_dp, "thesis section 5.4.5"),
        "fl-bas-2": _BAS_2,
        "fl-bas-2-dp": _dp(_BAS_2, fl_bas_2_dp, "UAI Table 8"),
        "fl-bas-3": _BAS_3,
        "fl-bas-3-dp": _dp(_BAS_3, fl_bas_3_dp, "UAI Table 8"),
        "fl-bas-4": _BAS_4,
        "fl-bas-4-dp": _dp(_BAS_4, fl_bas_4_dp, "UAI Table 8"),
        "fl-top": _TOP,
        "fl-top-dp": _dp(_TOP, fl_top_dp, "thesis Alg. 14"),
        "fl-top-bis": _TOP_BIS,
        "fl-top-bis-dp": _dp(_TOP_BIS, fl_top_bis_dp, "UAI Table 8"),
        "centralized": SchemeEntry(centralized, "reference", "nothing", "nothing", without=("downlink",)),
    },
    own="package.module:function",
)
"""Every scheme by its name on the command line."""
