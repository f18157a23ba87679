"""The comparison of votes and public data can be started: every arm is a configuration that works."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.votes import ARMS, STUDY, config, small_cnn
from laconic.settings.check import check_config


@pytest.mark.parametrize("paper", [False, True])
def test_every_arm_is_a_configuration_that_works(paper: bool) -> None:
    options = argparse.Namespace(rounds=None, ratio=None, clip_norm=1.0, local_lr=0.2, paper=paper, device="cpu")
    for arm in (*ARMS.values(), *STUDY.values()):
        check_config(config(arm, 2.0, 0, options), data_given=True)


def test_the_small_network_has_as_many_weights_as_the_page_says() -> None:
    assert sum(p.numel() for p in small_cnn().parameters()) == 54_314
