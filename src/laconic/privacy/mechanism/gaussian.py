"""Noise that the clients add themselves: each adds a share, and the shares of the cohort add up to the mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from laconic.errors import PrivacyError
from laconic.parts import Part, decided, positive

if TYPE_CHECKING:
    from torch import Tensor

    from laconic.plan import RoundPlan
    from laconic.privacy.mechanism.grid import Grid
    from laconic.streams import Stream


class Counted(NamedTuple):
    """What an accountant counts on: σ, the grid on which it is drawn, who adds it, how it is correlated over rounds.

    `grid_scale` is the least scale of a sum's noise in grid units, None for continuous noise, and `grid_unit` is how
    many grid units the sensitivity S is at least, 0 where the grid is as coarse as it may be.
    """

    noise_multiplier: float
    grid_scale: float | None = None
    grid_unit: float = 0.0
    added_by: str = "shares"
    bands: tuple[float, ...] = (1.0,)


@dataclass(frozen=True, kw_only=True)
class Noise(Part):
    """Base of the noises."""

    @property
    def private(self) -> bool:
        raise NotImplementedError

    @property
    def on_integers(self) -> bool:
        """Whether shares are integers mod 2^b, as masked sums need them, or floats."""
        return False

    @property
    def for_signs(self) -> bool:
        """Whether it takes a vector of signs, and no other code."""
        return False

    @property
    def central(self) -> bool:
        """Whether the server adds all of it, so that nothing protects the clients from the server."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether the server must remember sums of earlier rounds to add it."""
        return False

    @property
    def added_by(self) -> dict[str, str]:
        """The party that adds the noise, and the divisor of the sum: for the privacy statement."""
        return {
            "noise_added_by": "the clients, in shares that add up to it; the server tops up what an outsider sees",
            "denominator": "the planned cohort, a public constant",
        }

    def about(self, *, code_size: int, sensitivity: float, plan: RoundPlan, rounds: int, delta_slack: float) -> str:
        """What was drawn, and what that costs over so many rounds: for the privacy statement."""
        raise NotImplementedError

    def grid(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> Grid | None:
        """The grid on which it is drawn; None if it is not drawn on one."""
        return None

    def bits_by_the_papers(self, *, code_size: int, cohort: int) -> int | None:
        """Bits a value as the papers count them; None: as for the code without noise."""
        return None

    def share(self, code: Tensor, *, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        """The code with one client's noise share. `plan.noise_shares` of them together are the mechanism's noise."""
        raise NotImplementedError

    @property
    def draws_at_once(self) -> bool:
        """Whether many clients' shares can be drawn as one: whether there are `terms` and `around`."""
        return False

    def terms(self, codes: Tensor, *, code_size: int, sensitivity: float, plan: RoundPlan) -> Tensor:
        """What each code adds to the point around which the noise of a whole sum is drawn.

        Of codes of m = `code_size` values these may be some: (clients, any number of values).
        """
        raise NotImplementedError

    def term_units(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> float | None:
        """By what a value of a code is multiplied, and cut towards zero, to be a term; None: it is one as it is."""
        return None

    def bare_terms(self, messages: Tensor) -> Tensor:
        """The terms of messages that hold no noise (`without_noise`)."""
        return messages

    def around(self, total: Tensor, *, shares: int, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        """From the sum of the terms, the sum of the messages: so many shares of the noise are drawn at once."""
        raise NotImplementedError

    def counted(self, *, sensitivity: float, largest_cohort: int) -> Counted:
        """What an accountant counts on in a sum of codes of norm S, `sensitivity`, at most."""
        raise NotImplementedError

    def code_bits(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> int | None:
        """Bits per value if the noisy code is an integer; None if it is a float."""
        return None

    def for_votes(self, noise_multiplier: float | None) -> Noise:
        """The same kind of noise for ballots of 0 and 1; None: with the same noise multiplier."""
        raise NotImplementedError

    def for_cells(self, noise_multiplier: float | None) -> Noise:
        """The same kind of noise for the cells of an evaluation; None: with the same noise multiplier."""
        raise NotImplementedError

    def without_noise(self, code: Tensor, *, boost: float, sensitivity: float, plan: RoundPlan) -> Tensor:
        """What a client sends that leaves out clip and noise and counts its code `boost` times."""
        return boost * code

    def released(self, total: Tensor, *, sensitivity: float, plan: RoundPlan, survivors: int, rng: Stream) -> Tensor:
        """The sum in units of the code, its noise topped up to the same variance in every round."""
        return total

    def estimated(
        self, total: Tensor, memory: dict[str, Tensor], *, sensitivity: float, plan: RoundPlan, rng: Stream
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Of `central` noise: the sum in units of the code with its noise, and what the server remembers now.

        Before the first round it remembers nothing.
        """
        raise NotImplementedError

    def released_scale(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> float:
        """The scale of the noise in each coordinate of a released sum, in units of the code."""
        raise NotImplementedError

    def read(self, total: Tensor, *, sensitivity: float, plan: RoundPlan) -> Tensor:
        """A code, or a sum of some, in units of the code. Nothing is added: any holder of the integers can do it."""
        return total

    def delta_slack(self, *, code_size: int, num_draws: float, sensitivity: float, plan: RoundPlan) -> float:
        """What the sampler's finite precision adds to δ."""
        return 0.0

    def shares_distance(self, *, plan: RoundPlan) -> float:
        """How far, in total variation, a coordinate of a sum drawn `around` its terms is from a sum of shares."""
        return 0.0

    def at_once_slack(self, *, code_size: int, num_draws: float, sensitivity: float, plan: RoundPlan) -> float:
        """The slack where the noise of every sum is drawn at once, with the distance from the sum of the shares."""
        return 0.0


@dataclass(frozen=True, kw_only=True)
class NoNoise(Noise):
    """No noise, and so no promise.

    Examples:
        >>> laconic.NoNoise().private
        False
    """

    @property
    def private(self) -> bool:
        return False

    def about(self, *, code_size: int, sensitivity: float, plan: RoundPlan, rounds: int, delta_slack: float) -> str:
        return "there is no noise"

    def for_votes(self, noise_multiplier: float | None) -> NoNoise:
        return self

    def for_cells(self, noise_multiplier: float | None) -> NoNoise:
        return self

    def share(self, code: Tensor, *, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        return code

    def counted(self, *, sensitivity: float, largest_cohort: int) -> Counted:
        return Counted(0.0)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Noise):
    """G(0, S·σ/√(min_cohort)·I) per client: with min_cohort clients the sum carries G(0, S·σ·I) (thesis Alg. 10).

    In float32, as the papers draw it: for studies. Floats cannot be masked, and their low-order bits are not accounted
    for (Mironov 2012); `DiscreteGaussian` is the noise of a deployment. A σ of None is open: see `decided`.

    Args:
        noise_multiplier: σ.

    Examples:
        >>> laconic.Gaussian(noise_multiplier=1.0).on_integers
        False

    References:
        Thesis Alg. 10.
    """

    noise_multiplier: float | None

    def __post_init__(self) -> None:
        if self.noise_multiplier is not None:
            positive(noise_multiplier=self.noise_multiplier)

    @property
    def sigma(self) -> float:
        return decided(self.noise_multiplier)

    @property
    def private(self) -> bool:
        return True

    def about(self, *, code_size: int, sensitivity: float, plan: RoundPlan, rounds: int, delta_slack: float) -> str:
        return (
            "the noise is float32, as in the papers (--noise continuous): its low-order bits are not accounted for, and"
            " no secure aggregation can carry it"
        )

    def for_votes(self, noise_multiplier: float | None) -> Gaussian:
        return self if noise_multiplier is None else replace(self, noise_multiplier=noise_multiplier)

    def for_cells(self, noise_multiplier: float | None) -> Gaussian:
        return self.for_votes(noise_multiplier)

    def share_std(self, *, sensitivity: float, min_cohort: int) -> float:
        """S·σ/√min_cohort."""
        if not math.isfinite(sensitivity):
            raise PrivacyError("Gaussian noise needs a bounded code: give the scheme a clip (clip_norm)")
        if min_cohort < 1:
            raise PrivacyError(
                f"noise cannot be shared among {min_cohort} clients: lower max_dropouts or max_colluders"
            )
        return sensitivity * self.sigma / math.sqrt(min_cohort)

    def share(self, code: Tensor, *, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        std = self.share_std(sensitivity=sensitivity, min_cohort=plan.noise_shares)
        return rng.normal(tuple(code.shape), code.device).mul_(std).add_(code)

    @property
    def draws_at_once(self) -> bool:
        return True

    def terms(self, codes: Tensor, *, code_size: int, sensitivity: float, plan: RoundPlan) -> Tensor:
        return codes

    def around(self, total: Tensor, *, shares: int, sensitivity: float, plan: RoundPlan, rng: Stream) -> Tensor:
        std = self.share_std(sensitivity=sensitivity, min_cohort=plan.noise_shares) * math.sqrt(shares)
        return rng.normal(tuple(total.shape), total.device).mul_(std).add_(total)

    def counted(self, *, sensitivity: float, largest_cohort: int) -> Counted:
        return Counted(self.sigma)

    def released(self, total: Tensor, *, sensitivity: float, plan: RoundPlan, survivors: int, rng: Stream) -> Tensor:
        present = survivors / plan.noise_shares if survivors else 0.0
        missing = plan.released_variance - present
        if missing <= 1e-12:
            return total
        std = sensitivity * self.sigma * math.sqrt(missing)
        return total + rng.normal(tuple(total.shape), total.device) * std

    def released_scale(self, *, code_size: int, sensitivity: float, plan: RoundPlan) -> float:
        return sensitivity * self.sigma * math.sqrt(plan.released_variance)
