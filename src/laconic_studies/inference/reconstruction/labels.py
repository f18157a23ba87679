"""The label of a single record from its update (Zhao et al. 2020, iDLG).

For a cross-entropy of a softmax the gradient of the last bias is p − onehot(y): negative at the label alone. One step
of descent turns signs around, so the bias of the label is the only one that grows. A vector of signs tells as much.
"""

from __future__ import annotations

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.train.flat import FlatModel
from laconic_studies.inference.views import Moment


def inferred_labels(model: FlatModel, moment: Moment, codes: Tensor) -> Tensor:
    """For each of the codes (victims, m) the class whose output bias grows most, (victims,)."""
    name = model.names[-1]
    if model.shapes[-1] != (model.num_classes,) or model.num_classes < 3:
        raise ConfigError(
            "labels are inferred from the last layer's bias for each class, which this model lacks: --labels known"
        )
    return torch.stack([moment.in_weights(code)[model.places[name]] for code in codes]).argmax(1)
