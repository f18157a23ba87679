"""What users choose by name."""

from __future__ import annotations

import pytest

from laconic.errors import ConfigError
from laconic.models.registry import MODELS, find_model
from laconic.registry import Registry


def test_an_entry_is_known_as_soon_as_it_is_registered() -> None:
    colours = Registry("colour", {"red": 1})
    with pytest.raises(ConfigError, match="unknown colour 'blue': Known: red"):
        colours.find("blue")
    assert colours.register("green", 2) == 2
    assert colours.find("green") == 2 and dict(colours) == {"red": 1, "green": 2}


def test_an_unknown_name_is_answered_with_the_nearest_and_with_how_to_name_ones_own() -> None:
    with pytest.raises(ConfigError, match=r"unknown model 'mpl': did you mean 'mlp'\?.*own as package.module:factory"):
        find_model("mpl")
    assert find_model("auto") is None and find_model("mlp") is MODELS["mlp"]
    with pytest.raises(ConfigError, match="Known: auto, red"):
        Registry("colour", {"red": 1}).find("blue", also=["auto"])
