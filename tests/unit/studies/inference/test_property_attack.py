"""Property inference on a small task: what is planted is found, what is not there is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from property_tools import TRAIN, attacked, planted, settings, small_model

from laconic import schemes
from laconic.aggregate.protocol import PlainSum
from laconic.errors import ConfigError, DataError
from laconic.privacy.mechanism.gaussian import NoNoise
from laconic.scheme import Scheme
from laconic_studies.inference.property import SHARES, PropertyAttack, PropertyInference, PropertyResult, check_scheme
from laconic_studies.inference.property_data import Batches, dealt
from laconic_studies.inference.property_setup import PropertySetup, shrunk
from laconic_studies.inference.scores import Score

ALARM = 1e-4
"""The rate of false alarms of the tests below: how often a coin would be called informative."""


def only(result: PropertyResult) -> Score:
    (guess,) = result.guesses
    return guess.score


@pytest.mark.parametrize("build", [schemes.fl_std, schemes.fl_sign])
def test_a_planted_property_is_found_in_the_code(build: object) -> None:
    found = only(attacked(build(**TRAIN), settings(views=("single",), features=("signed",))))  # type: ignore[operator]
    assert found.auc.value > 0.8
    assert found.p_value < ALARM


def test_a_shuffled_property_is_not_found() -> None:
    """False alarms: 10⁻⁴."""
    has = np.random.default_rng(5).permutation(planted()[1])
    found = only(attacked(schemes.fl_std(**TRAIN), settings(views=("single",), features=("signed",)), has=has))
    assert found.p_value > ALARM
    assert found.auc.value < 0.8


@pytest.mark.parametrize("classifier", ["forest", "logistic"])
def test_absolute_features_of_signs_are_a_coin_by_construction(classifier: str) -> None:
    """|±1| = 1: the features are constant, in the code and in the vote, so accuracy and AUC are ½ to the last bit."""
    how = settings(views=("single", "model"), features=("absolute",), classifiers=(classifier,), rounds=20)
    for guess in attacked(schemes.fl_sign(**TRAIN), how).guesses:
        assert guess.score.accuracy.value == guess.score.balanced_accuracy.value == 0.5
        assert guess.score.auc == (0.5, 0.5, 0.5)


def test_every_view_of_every_scheme_can_be_tried() -> None:
    for scheme in (
        schemes.fl_top(ratio=0.3, **TRAIN),
        schemes.fl_cs(ratio=0.3, num_chunks=2, max_iterations=10, **TRAIN),
        schemes.fl_top_dp(ratio=0.3, clip_norm=0.1, noise_multiplier=1.0, **TRAIN),
    ):
        result = attacked(scheme, settings(participants=4, rounds=20, emulate_every=10))
        assert [(g.view, g.features) for g in result.guesses] == [
            (view, features) for view in ("single", "others", "model") for features in ("absolute", "signed")
        ]


def noisy_and_not() -> tuple[Scheme, Scheme]:
    """FL-STD-DP with σ = 1.5, and its sabotaged twin: the same clip, but everybody leaves out the noise."""
    private = schemes.fl_std_dp(clip_norm=0.05, noise_multiplier=1.5, **TRAIN)
    return private, replace(private, noise=NoNoise(), secure_sum=PlainSum())


@pytest.mark.stat
def test_noise_makes_a_coin_of_the_attacker_and_missing_noise_is_noticed() -> None:
    """The sum of the others with σ = 1.5: a coin is called informative with probability 10⁻⁴.

    The twin without noise is called informative. (An ideal attacker may be right in Φ(1/σ) = 75 % of the rounds, as two
    codes differ by 2S at most; this one cannot be told from a coin.)
    """
    private, sabotaged = noisy_and_not()
    how = settings(participants=3, rounds=60, views=("others",), features=("signed",))
    assert only(attacked(private, how)).p_value > ALARM
    assert only(attacked(sabotaged, how)).p_value < ALARM


def test_a_clean_emulation_has_no_noise_and_what_is_observed_has() -> None:
    private, _ = noisy_and_not()
    how = settings(participants=3, rounds=20, emulation="clean", views=("single",), features=("signed",))
    attack = made(private, how)
    here = attack.moment(1)
    codes = attack.codes(here, attack.rows(1, True, emulating=True))
    _, clean, _ = attack.emulated(here, codes, attack.sent(here, codes[:3])[1])
    assert len(clean) == len(SHARES) and all(torch.equal(cohort[1], codes[1]) for cohort in clean)
    assert torch.equal(clean[0][0], codes[3])
    noisy = made(private, replace(how, emulation="noisy"))
    _, sent, _ = noisy.emulated(here, codes, noisy.sent(here, codes[:3])[1])
    assert all(not cohort.is_floating_point() for cohort in sent)
    assert not torch.equal(sent[0][0], sent[1][0])


def made(scheme: Scheme, how: PropertyInference) -> PropertyAttack:
    records, has = planted(400)
    held = dealt(has, participants=how.participants, records=8, public_records=5, rng=np.random.default_rng(0))
    batches = Batches(held, records.targets.numpy(), records=8, match_labels=False)
    return PropertyAttack(scheme, small_model(), records, batches, how)


def test_the_same_seed_gives_the_same_figures() -> None:
    how = settings(rounds=20, views=("model",), features=("signed",), emulate_every=5)
    first, second = (attacked(schemes.fl_std(**TRAIN), how) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("scheme", "problem"),
    [
        (schemes.centralized(**TRAIN), "sends nothing"),
        (
            schemes.fl_std_record_dp(
                clip_norm=1.0, noise_multiplier=1.0, record_rate=0.1, batch_size=8, prevalence=0.5, local_lr=0.1
            ),
            "protects single records",
        ),
    ],
)
def test_schemes_without_codes_to_look_at_are_refused(scheme: Scheme, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        check_scheme(scheme)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"views": ("sum",)}, "unknown view 'sum'"),
        ({"features": ("sign",)}, "did you mean 'signed'"),
        ({"classifiers": ("tree",)}, "unknown classifier 'tree'"),
        ({"emulation": "none"}, "unknown emulation 'none'"),
        ({"participants": 1}, "a victim and an attacker are two"),
        ({"rounds": 12}, "fewer than 10 observations"),
        ({"share": 1.5}, "share must be strictly between 0 and 1"),
        ({"warm_up": -1}, "warm_up must be a whole number"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_one_line(change: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        settings(**change)
    assert "\n" not in str(refused.value)


def test_pictures_are_shrunk_to_means() -> None:
    picture = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert shrunk(picture, 2).tolist() == [[[[2.5, 4.5], [10.5, 12.5]]]]  # type: ignore[union-attr]
    assert shrunk(picture, 1) is picture
    for records, factor in ((torch.zeros(3, 5), 2), (picture, 5)):
        with pytest.raises(ConfigError, match=f"--shrink {factor}"):
            shrunk(records, factor)


@pytest.mark.realdata
def test_faces_tell_age_through_updates_and_signs() -> None:
    """The stand-in for LFW: signed features tell a property of faces, absolute ones of signs do not."""
    try:
        prepared = PropertySetup(dataset="faces", attribute="not-young", match_labels=True, shrink=2).prepared()
    except DataError as error:
        pytest.skip(str(error))
    assert prepared.stand_in_for == "lfw" and prepared.model_name == "lfw-cnn"
    how = settings(warm_up=10, rounds=60, emulate_every=3, views=("single",), classifiers=("forest",))
    for scheme in (schemes.fl_std(**TRAIN), schemes.fl_sign(**TRAIN)):
        found = {guess.features: guess.score for guess in prepared.attacked(scheme, how).guesses}
        assert found["signed"].auc.value > 0.65
        if scheme.name == "fl-sign":
            assert found["absolute"].auc.value == 0.5
