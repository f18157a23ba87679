"""From the `[sampler]` section to a sampler."""

from __future__ import annotations

from laconic.errors import ConfigError
from laconic.options.sections import SamplerSection
from laconic.privacy.accounting.sampling import AsPublished, Cyclic, FixedSize, Poisson, Sampler


def make_sampler(section: SamplerSection, num_clients: int | None, *, usual_rate: float = 0.1) -> Sampler:
    """The sampler that the section describes, checked against the population, if that is known.

    `usual_rate` is Poisson's unless one is given.
    """
    if section.kind == "cyclic":
        given = {"⟨sampling-rate⟩": section.sampling_rate, "⟨cohort-size⟩": section.cohort_size}
        for flag in (flag for flag, value in given.items() if value is not None):
            raise ConfigError(f"⟨sampler⟩ cyclic takes ⟨separation⟩, not {flag}: each round has 1/separation of all")
        turns = Cyclic(separation=10 if section.separation is None else section.separation)
        if num_clients is not None:
            turns.check(num_clients)
        return turns
    if section.separation is not None:
        raise ConfigError(f"⟨separation⟩ {section.separation} is for clients that take turns: add ⟨sampler⟩ cyclic")
    if section.kind == "poisson":
        if section.cohort_size is not None:
            raise ConfigError("Poisson sampling takes ⟨sampling-rate⟩; for ⟨cohort-size⟩ choose ⟨sampler⟩ fixed-size")
        sampler: Sampler = Poisson(sampling_rate=usual_rate if section.sampling_rate is None else section.sampling_rate)
    else:
        if section.sampling_rate is not None:
            raise ConfigError(f"⟨sampler⟩ {section.kind} takes ⟨cohort-size⟩, not ⟨sampling-rate⟩")
        size = section.cohort_size if section.cohort_size is not None else max(1, (num_clients or 1) // 10)
        sampler = (FixedSize if section.kind == "fixed-size" else AsPublished)(cohort_size=size)
    if num_clients is not None:
        sampler.check(num_clients)
    return sampler
