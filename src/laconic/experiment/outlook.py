"""Whether a private run can learn anything, from public numbers, before any ε is spent.

In units of the clip S, the released means of all T rounds together have noise of the norm

    ν = √(m/o)·σ/(n·√T)

for m values per output of the model, o outputs, and n clients or units in a round. What can be learnt shows in the mean
of the clipped vectors. A single record's gradient points mostly its own way: on tables the mean of unit vectors has a
norm of about g = 0.03. A client whose update is a mean over k records points to what is common by g/√(g² + 1/k).
k follows from the steps and batches that were asked for, or is taken as 100: how many records clients hold is theirs,
and a run that is refused, or a ratio that is written down, must not tell it.

The ratio of the two says what to expect. It is rough: data differ in g by a factor of three either way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from laconic.experiment.experiment import Experiment
from laconic.privacy.accounting.releases import CLIENT
from laconic.train.local import LocalSGD, LocalTraining

COMMON = 0.03
GREEN, RED = 1.0, 0.02
_USUAL_RECORDS = 100


@dataclass(frozen=True)
class Outlook:
    """What is to be expected of a run.

    Attributes:
        ratio: of signal to noise in the sum of all rounds.
        light: 'green', 'yellow' or 'red'.
        text: the same in words, with what would help.
    """

    ratio: float
    light: str
    text: str


def outlook_of(experiment: Experiment) -> Outlook | None:
    """That of a run; None without privacy, where each record is noised by itself, or where noise is correlated."""
    scheme = experiment.scheme
    sigma = scheme.noise_multiplier
    if not scheme.noise.private or scheme.record_level or scheme.noise.central or sigma is None:
        return None
    vectors = experiment.typical_plan().divisor
    rounds = max(1, scheme.planned(experiment.rounds)["training"])
    noise = math.sqrt(experiment.code_size / _outputs(experiment)) * sigma / (vectors * math.sqrt(rounds))
    records = 1 if scheme.unit != CLIENT else _visited(scheme.train)
    signal = COMMON / math.sqrt(COMMON**2 + 1 / records)
    ratio = signal / noise
    return Outlook(ratio, _light(ratio), _words(ratio, experiment, vectors))


def _outputs(experiment: Experiment) -> int:
    """Of a linear layer: what it has learnt of one class is in the weights of that class."""
    shapes = [p.shape for p in experiment.model.parameters() if p.requires_grad]
    return int(shapes[0][0]) if len(shapes) <= 2 and shapes and len(shapes[0]) == 2 else 1


def _visited(train: LocalTraining) -> int:
    """How many records are in a client's update, by what was asked for."""
    if not isinstance(train, LocalSGD) or train.local_steps is None or train.batch_size is None:
        return _USUAL_RECORDS
    return train.local_steps * train.batch_size


def _light(ratio: float) -> str:
    return "green" if ratio >= GREEN else "yellow" if ratio >= RED else "red"


def _words(ratio: float, experiment: Experiment, vectors: float) -> str:
    if ratio >= GREEN:
        return f"there is about {ratio:.2g} times as much to learn as there is noise"
    times = f"the noise in all rounds together is about {1 / ratio:.2g} times as large as what can be learnt"
    unit, size = experiment.scheme.unit, experiment.code_size
    ways = []
    if unit == CLIENT and vectors < 1000:
        ways.append("protect records or patients instead of whole clients (⟨unit⟩)")
    if size > 10_000:
        ways.append(f"train fewer than {size:,} values (⟨model⟩ logistic)")
    if experiment.sampler.rate_in(experiment.population.num_clients) < 1:
        ways.append("let all clients take part in every round (⟨sampling-rate⟩ 1)")
    ways.append("allow a larger ⟨epsilon⟩, or let laconic run auto choose")
    what = "hopeless: " if ratio < RED else "the model will be poor: " if ratio < GREEN / 3 else "expect a loss: "
    return f"{what}{times}. What helps: {'; '.join(ways)}"
