"""The feature maps on tensors whose features are known."""

from __future__ import annotations

import pytest
import torch

from laconic.errors import ConfigError
from laconic_studies.inference.property_features import absolute, check_features, signed

CONV, BIAS, SMALL = torch.Size((2, 3, 2, 2)), torch.Size((2,)), torch.Size((2, 4))


def joined(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in parts])[None]


def test_absolute_takes_the_largest_size_of_each_kernel_and_leaves_biases_out() -> None:
    conv = torch.zeros(CONV)
    conv[0, 1, 1, 0], conv[0, 1, 0, 1], conv[1, 2, 0, 0] = -3.0, 2.0, 1.0
    matrix = torch.tensor([[1.0, -2.0, 3.0, -4.0], [5.0, 6.0, -7.0, 8.0]])
    features = absolute(joined(conv, torch.tensor([9.0, 9.0]), matrix), [CONV, BIAS, SMALL])
    assert features.tolist() == [[0, 3, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]]


def test_signed_takes_the_mean_of_each_kernel_and_the_biases() -> None:
    conv = torch.zeros(CONV)
    conv[0, 1, 1, 0], conv[0, 1, 0, 1] = -3.0, 2.0
    matrix = torch.arange(8.0).reshape(2, 4)
    features = signed(joined(conv, torch.tensor([9.0, -9.0]), matrix), [CONV, BIAS, SMALL])
    assert features.tolist() == [[0, -0.25, 0, 0, 0, 0, 9, -9, *range(8)]]


def test_large_matrices_are_summarised_by_inputs() -> None:
    """In torch the rows of a weight are outputs, so a feature belongs to a column."""
    shape = torch.Size((60, 100))
    matrix = torch.zeros(shape)
    matrix[7, 3], matrix[8, 3] = -5.0, 1.0
    by_input = absolute(matrix.reshape(1, -1), [shape])
    assert by_input.shape == (1, 100) and by_input[0, 3] == 5 and by_input.sum() == 5
    both = signed(matrix.reshape(1, -1), [shape])
    assert both.shape == (1, 160)
    assert both[0, 3] == pytest.approx(-4 / 60) and both[0, 107] == pytest.approx(-5 / 100)


def test_convolutions_with_many_channels_are_left_out_of_absolute() -> None:
    shapes = [torch.Size((100, 60, 3)), SMALL]
    updates = torch.ones(2, sum(shape.numel() for shape in shapes))
    assert absolute(updates, shapes).shape == (2, 8)
    assert signed(updates, shapes).shape == (2, 60 + 100 + 8)


def test_absolute_sees_nothing_in_signs_and_signed_does() -> None:
    updates = torch.sign(torch.randn(5, CONV.numel(), generator=torch.Generator().manual_seed(0)))
    assert (absolute(updates, [CONV]) == 1).all()
    assert len({tuple(row) for row in signed(updates, [CONV]).tolist()}) == 5


def test_a_model_without_matrices_has_no_absolute_features() -> None:
    with pytest.raises(ConfigError, match="finds nothing to look at"):
        absolute(torch.ones(1, 2), [BIAS])


def test_an_unknown_feature_map_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown feature map 'sined': did you mean 'signed'"):
        check_features(("sined",))
