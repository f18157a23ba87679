"""Every scheme, one short declaration each. Start here.

A round of any of them: the server sends the weights, each client of the cohort trains (`train`), compresses its
update (`codec`), bounds it (`clip`), adds its share of the noise (`noise`); the codes are summed (`secure_sum`) and
the server turns their mean into a change of the weights (`rule`). What is not named is an identity part. A private
version is the same declaration with a bound and noise, under secure aggregation: `fl_top_dp = private(fl_top)`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

import laconic.aggregate.names  # noqa: F401 - a node that reads a scheme must know every rule
from laconic.aggregate.protocol import SecureSum
from laconic.codecs.dct import LowPassDCT
from laconic.codecs.sign import Sign
from laconic.codecs.solvers import Fista
from laconic.codecs.subset import FixedRandomSubset, NewRandomSubset, Subset, TopSubset
from laconic.codecs.votes import Ballot, VotedSubset
from laconic.errors import ConfigError, UnknownArgument, several, unknown
from laconic.parts import one_of
from laconic.privacy.accounting.record_sampling import record_sampler
from laconic.privacy.accounting.releases import CLIENT, UNITS
from laconic.privacy.mechanism.clip import L2Clip, UnitEntries
from laconic.privacy.mechanism.discrete_gaussian import DiscreteGaussian
from laconic.privacy.mechanism.gaussian import Gaussian, Noise
from laconic.privacy.mechanism.grid import MOST_BITS
from laconic.scheme import Scheme
from laconic.server.rules import Average, ErrorFeedback, MajorityVote, ServerRule
from laconic.server.steps import Preconditioned
from laconic.train.local import LocalDPSGD, LocalSGD, UnitGradients

NOISES = ("integer", "continuous")
TOP_SELECTIONS = ("public", "votes")
VOTE_ROUNDS, VOTE_BLOCK = 4, 16
"""How many rounds are votes, and the weights that are voted on together: measured in docs/results/votes.md."""


class PrivateScheme(Protocol):
    """What `private` makes of a scheme's function: the same options, and those of the bound and the noise."""

    def __call__(
        self,
        *,
        clip_norm: float,
        noise_multiplier: float | None = None,
        noise: str = "integer",
        bits: int | None = None,
        ring_bits: int | None = None,
        unit: str = CLIENT,
        unit_rate: float = 1.0,
        max_owners_per_patient: int = 1,
        num_units: float | None = None,
        class_weights: Sequence[float] | str = (),
        prevalence: float | Sequence[float] | str = (),
        **options: Any,
    ) -> Scheme: ...


def private(declared: Callable[..., Scheme], *, what: str = "codes", source: str = "") -> PrivateScheme:
    """The private version: the code clipped to S plus a noise share, c/max(1, ‖c‖₂/S) + G(0, S·σ/√|K|·I).

    The server sees the sum only; clients count alike and the denominator is public. The noise is drawn on integers of
    `bits` bits (as few as the sum allows, unless given), so that it can be masked; `ring_bits` is a ring with room to
    spare; "continuous" is float32, as in the papers, for studies. Without `noise_multiplier` σ is open: `laconic.run`
    calibrates it to the epsilon that it is given. `what` and `source` are for the docstring.
    """

    def build(
        *,
        clip_norm: float,
        noise_multiplier: float | None = None,
        noise: str = "integer",
        bits: int | None = None,
        ring_bits: int | None = None,
        unit: str = CLIENT,
        unit_rate: float = 1.0,
        max_owners_per_patient: int = 1,
        num_units: float | None = None,
        class_weights: Sequence[float] | str = (),
        prevalence: float | Sequence[float] | str = (),
        **options: Any,
    ) -> Scheme:
        if declared.__module__ == __name__:  # what a user's own scheme takes, it knows itself
            _check_names(options, declared, build)
        one_of(UNITS, unit=unit)
        inside = {
            "unit_rate": unit_rate,
            "max_owners_per_patient": max_owners_per_patient,
            "num_units": num_units,
            "class_weights": _numbers(class_weights, "class_weights", "1,5"),
            "prevalence": _shares(_numbers(prevalence, "prevalence", "0.02, or 0.5,0.3,0.2")),
        }
        if unit == CLIENT:
            _refuse_idle(inside)
            scheme = declared(**options)
            train = scheme.train
        else:
            train = _of_units(unit, inside, options)
            scheme = declared(local_lr=1.0, local_steps=1, **options)
            # Every unit is put on the grid by itself, so it must be fine: as fine as the widest ring allows.
            bits = MOST_BITS if bits is None and noise == "integer" else bits
        return replace(
            scheme,
            train=train,
            name=f"{scheme.name}-dp",
            clip=L2Clip(clip_norm=clip_norm),
            noise=_noise(noise, noise_multiplier, bits, ring_bits),
            secure_sum=SecureSum(),
            weighting="uniform",
        )

    build.__name__ = build.__qualname__ = f"{declared.__name__}_dp"
    build.__doc__ = _private_doc(declared, what, source)
    build.__signature__ = _private_signature(build, declared)  # type: ignore[attr-defined]
    build.plain = declared  # type: ignore[attr-defined]
    return build


_INSIDE = {"unit_rate": 1.0, "max_owners_per_patient": 1, "num_units": None, "class_weights": (), "prevalence": ()}
"""What is said of units inside clients, and what stands for nothing."""
_LOCAL_STEPS = ("local_lr", "local_steps", "epochs", "batch_size", "optimizer", "balance")


def _numbers(given: float | Sequence[float] | str, name: str, example: str) -> tuple[float, ...]:
    """Numbers, one for each class, from a text such as 1,5 or as they are."""
    parts: Sequence[Any] = given.replace(";", ",").split(",") if isinstance(given, str) else given  # type: ignore[assignment]
    try:
        return (float(given),) if isinstance(given, int | float) else tuple(float(part) for part in parts)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be numbers, such as {example}, not {given!r}") from None


def _shares(given: tuple[float, ...]) -> tuple[float, ...]:
    """The shares of all classes; one number is that of class 1 of two."""
    return (1 - given[0], given[0]) if len(given) == 1 else given


def _flags(names: Iterable[str]) -> str:
    return ", ".join("--" + name.replace("_", "-") for name in names)


def _refuse_idle(inside: dict[str, Any]) -> None:
    """Refuse what is said of units inside clients where clients are the unit."""
    idle = [name for name, value in inside.items() if value != _INSIDE[name]]
    if idle:
        raise ConfigError(
            f"{_flags(idle)} means nothing with --unit client: add --unit patient (or record), or leave it out"
        )


def _of_units(unit: str, inside: dict[str, Any], options: dict[str, Any]) -> UnitGradients:
    """What clients do that send clipped sums of their records' or patients' gradients, instead of training."""
    given = [name for name in _LOCAL_STEPS if name in options]
    if given:
        raise ConfigError(
            f"{_flags(given)} means nothing with --unit {unit}: every {unit} gives one clipped gradient a round (after"
            f" more local steps, no bound holds for what one {unit} changes); set the server's step with --server-lr,"
            f" how many {unit}s are drawn with --unit-rate, rare classes with --class-weights"
        )
    return UnitGradients(
        unit=unit,
        rate=inside["unit_rate"],
        max_owners=inside["max_owners_per_patient"],
        num_units=inside["num_units"],
        class_weights=inside["class_weights"],
        prevalence=inside["prevalence"],
    )


_PRIVATE_ARGUMENTS = """
    clip_norm: S: a longer code is shortened to this L2 norm.
    noise_multiplier: σ; open if None: `laconic.run` then calibrates it to its `epsilon`.
    noise: 'integer', which can be masked, or 'continuous', as in the papers, for studies.
    bits: bits of a value; as few as the sum allows, unless given.
    ring_bits: bits of the ring in which sums are taken, where it shall have room to spare.
    unit: whom the noise protects: 'client', or 'record' or 'patient' inside clients; then S bounds what one adds.
    unit_rate: with which probability a client draws each record or patient in a round, by coins of its own.
    max_owners_per_patient: at how many clients a patient is at most; each of them clips to S over this.
    num_units: about how many records or patients all clients hold together: a public number, by which sums are divided.
    class_weights: public weights of the classes in the gradients of records or patients, as numbers or as '1,5'.
    prevalence: with records or patients, the publicly known share of class 1, or of each class: the first bias.
"""


def _private_signature(build: Callable[..., Scheme], declared: Callable[..., Scheme]) -> inspect.Signature:
    """With the options of the scheme in the place of `**options`: for people, and for editors."""
    own, base = inspect.signature(build), inspect.signature(declared).parameters
    named = {name: one for name, one in own.parameters.items() if one.kind is one.KEYWORD_ONLY}
    named |= {name: one for name, one in base.items() if one.kind is one.KEYWORD_ONLY and name not in named}
    rest = [one for one in base.values() if one.kind is one.VAR_KEYWORD]
    return own.replace(parameters=[*named.values(), *rest])


def _private_doc(declared: Callable[..., Scheme], what: str, source: str) -> str:
    """The docstring of a private version: its own arguments, then those of the scheme."""
    name = declared.__name__.upper().replace("_", "-")
    text = inspect.getdoc(declared) or ""
    arguments = re.search(r"^Args:\n(.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    call = re.search(rf"{declared.__name__}\((.*?local_steps=\d+)\)", text)
    example = f"laconic.schemes.{declared.__name__}_dp(clip_norm=0.5, noise_multiplier=1.0, {call[1]})" if call else ""
    parts = [
        f"{name}-DP: {name} with clipped and noised {what}.",
        "c/max(1, ‖c‖₂/S) + G(0, S·σ/√|K|·I) for a code c, under a secure sum; all clients count alike.",
        "Args:" + _PRIVATE_ARGUMENTS + (arguments[1] if arguments else ""),
        f"Examples:\n    >>> {example}.private\n    True" if example else "",
        f"References:\n    {source}." if source else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _noise(kind: str, noise_multiplier: float | None, bits: int | None, ring_bits: int | None) -> Noise:
    one_of(NOISES, noise=kind)
    if kind == "integer":
        return DiscreteGaussian(noise_multiplier=noise_multiplier, bits=bits, ring_bits=ring_bits)
    for flag, value in (("--bits", bits), ("--ring-bits", ring_bits)):
        if value is not None:
            raise ConfigError(f"{flag} {value} means nothing with --noise continuous: leave one of them out")
    return Gaussian(noise_multiplier=noise_multiplier)


def _local_sgd(declared: Callable[..., Scheme], options: dict[str, Any]) -> LocalSGD:
    """Local training with the options that the scheme itself does not take."""
    _check_names(options, declared)
    return LocalSGD(**options)


def _check_names(options: dict[str, Any], *declared: Callable[..., Scheme]) -> None:
    """Refuse options that neither these functions nor local training take, with the nearest name that they do."""
    known = {field.name for field in fields(LocalSGD)}
    for function in declared:
        known |= {p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}
    if "unit" in options and "unit" not in known:
        check_unit(declared[-1].__name__.replace("_", "-"), options["unit"])
        options = {name: value for name, value in options.items() if name != "unit"}
    strange = [unknown(f"option of {declared[-1].__name__}", name, known) for name in options if name not in known]
    if strange:
        raise UnknownArgument(several(strange))


def check_unit(name: str, unit: str) -> None:
    """Refuse units inside clients for a scheme that does not know them, with the reason."""
    one_of(UNITS, unit=unit)
    if unit == CLIENT:
        return
    if "record" in name:
        reason = "protects single records already, as published: every client adds the whole noise of its own"
    elif "sign" in name:
        reason = f"sends signs, which are not the sum of the signs of single {unit}s: one {unit} may change all of them"
    else:
        reason = "adds no noise"
    raise ConfigError(
        f"--unit {unit}: {name} {reason}; use fl-std-dp or another private scheme whose codec is linear (fl-top-dp,"
        " fl-cs-dp, fl-bas-3-dp), or leave --unit out"
    )


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
            raise ConfigError("--outputs means nothing without --precondition: leave it out")
        return Average(server_lr=server_lr, momentum=momentum)
    if outputs is None:
        raise ConfigError("precondition needs outputs: how many the linear layer has")
    return Preconditioned(outputs=outputs, damping=damping, server_lr=server_lr, momentum=momentum)


fl_std_dp = private(fl_std, what="updates", source="Thesis Alg. 10; EuroS&P'21 Alg. 5; McMahan et al. (ICLR 2018)")


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
    _check_names(options, fl_sign, fl_sign_dp)
    return replace(
        fl_sign(sign_step=sign_step, **options),
        name="fl-sign-dp",
        clip=UnitEntries(),
        noise=DiscreteGaussian(noise_multiplier=noise_multiplier, bits=bits, signs=True, ring_bits=ring_bits),
        secure_sum=SecureSum(),
    )


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
    _check_names(options, sign_sgd, sign_sgd_dp)
    return replace(
        sign_sgd(sign_step=sign_step, **options),
        name="sign-sgd-dp",
        clip=UnitEntries(),
        noise=DiscreteGaussian(noise_multiplier=noise_multiplier, bits=bits, signs=True, ring_bits=ring_bits),
        secure_sum=SecureSum(),
    )


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


fl_rnd_dp = private(fl_rnd, source="Thesis Alg. 12")


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


fl_freq_dp = private(fl_freq, source="Thesis Alg. 13")


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


fl_cs_dp = private(fl_cs, source="EuroS&P'21 Alg. 4; thesis Alg. 11")


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


fl_basic_dp = private(fl_basic, source="Thesis section 5.4.5")


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


fl_bas_2_dp = private(fl_bas_2, source="UAI'21 Table 8")


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


fl_bas_3_dp = private(fl_bas_3, source="UAI'21 Table 8")


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


fl_bas_4_dp = private(fl_bas_4, source="UAI'21 Table 8")


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
    flags = ("--vote-rounds", "--vote-ratio", "--vote-block", "--vote-noise-multiplier")
    idle = [flag for flag, value in zip(flags, given, strict=True) if value is not None]
    if idle:
        raise ConfigError(f"{', '.join(idle)} means nothing without votes: add --top-selection votes")


fl_top_dp = private(fl_top, source="Thesis Alg. 14")


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


fl_top_bis_dp = private(fl_top_bis, source="UAI'21 Table 8")
