"""From the [attack] section to an attack: classes by name, published defaults, and refusals in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from laconic.adversary.attack import Attack
from laconic.errors import ConfigError
from laconic.settings.build import settle
from laconic.settings.check import check_config
from laconic.settings.config import RunConfig, full_path, read_toml, write_toml
from laconic.settings.parts import class_names, class_number

SMALL = {"data.num_clients": 50, "sampler.kind": "fixed-size", "sampler.cohort_size": 20, "run.rounds": 2}
PRIVATE = {"scheme.name": "fl-sign-dp", "scheme.noise_multiplier": 1.0}


def config(kind: str | None, scheme: str = "fl-std", **changes: Any) -> RunConfig:
    """`attack__key` without the section: what is said of the attack; others as section__key."""
    values: dict[str, Any] = {"scheme.name": scheme, **({} if kind is None else {"attack.kind": kind})}
    for name, value in changes.items():
        values[name.replace("__", ".") if "__" in name else f"attack.{name}"] = value
    return RunConfig().with_values(SMALL | values)


def settled(kind: str, scheme: str = "fl-std", **changes: Any) -> Attack:
    attack = settle(config(kind, scheme, **changes)).experiment.attack
    assert attack is not None
    return attack


def test_defaults_are_those_of_the_thesis() -> None:
    random, ascent = settled("random-update"), settled("gradient-ascent")
    assert (random.boost, random.scale, random.collude, random.fraction) == (1, 200, False, 0.1)  # type: ignore[attr-defined]
    assert (ascent.boost, ascent.collude, ascent.share, ascent.boost_as) == (10, True, "all", "update")
    assert settled("out-backdoor", source=0, target=1).boost == 1


def test_signs_in_a_secure_sum_are_boosted_by_5000_and_all_send_the_same() -> None:
    for kind in ("random-update", "gradient-ascent"):
        attack = settled(kind, "fl-sign-dp", scheme__noise_multiplier=1.0)
        assert (attack.boost, attack.collude, attack.omit_noise) == (5000, True, True)
    assert settled("gradient-ascent", "fl-sign-dp", scheme__noise_multiplier=1.0, boost=3).boost == 3


@pytest.mark.parametrize("given", [{"source": 5, "target": 7}, {"source": "5", "target": "7"}])
def test_classes_have_numbers(given: dict[str, Any]) -> None:
    assert settled("in-backdoor", **given).backdoor == (5, 7)


def test_classes_have_names() -> None:
    fashion = config("in-backdoor", data__dataset="fashion-mnist", source="Sandal", target="sneaker")
    names = class_names(fashion)
    assert class_number("Sandal", names, 10, "--attack-source") == 5
    assert class_number("t-SHIRT/top", names, 10, "--attack-source") == 0
    cifar = config("out-backdoor", data__dataset="cifar10", source="airplane", target="ship", removed="bird, truck")
    check_config(cifar)
    assert [class_number(word, class_names(cifar), 10, "") for word in ("bird", "truck", "8")] == [2, 9, 8]


def test_a_settled_configuration_repeats_the_attack(tmp_path: Path) -> None:
    first = settle(config("in-backdoor", source="5", target=7, malicious="3,7"))
    assert first.experiment.malicious.tolist() == [3, 7]
    file = tmp_path / "config.toml"
    file.write_text(write_toml(first.config.to_dict()))
    again = settle(RunConfig.from_dict(read_toml(file)))
    assert again.experiment.attack == first.experiment.attack and again.config == first.config


def test_a_plain_run_has_no_attack() -> None:
    found = settle(config(None))
    assert found.experiment.attack is None and "attack" not in write_toml(found.config.to_dict())


def test_a_key_that_another_section_had_first_is_still_that_one() -> None:
    assert (full_path("target"), full_path("fraction")) == ("data.target", "attack.fraction")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (config("gradient-accent"), "unknown attack 'gradient-accent': did you mean 'gradient-ascent'"),
        (config(None, boost=3.0), "attack.boost is set, but no attack: say which with --attack KIND"),
        (config("in-backdoor", source="fives", target="7"), "--attack-source: unknown class 'fives'"),
        (config("in-backdoor", source=5, target=12), "--attack-target 12: there are 10 classes, numbered from 0"),
        (config("in-backdoor", source=5, target=5), "the attacked class 5 is to be taken for itself"),
        (config("in-backdoor", source=5), "--attack in-backdoor needs --attack-target"),
        (config("random-update", source=5), "--attack random-update takes no source: leave out --attack-source"),
        (config("random-update", fraction=1.5), "fraction must be at least 0 and below 1"),
        (config("random-update", malicious="3;7"), "--attack-malicious 3;7: write the numbers of clients"),
        (config("random-update", malicious="3", fraction=0.1), "say who attacks"),
        (config("random-update", share="some"), "unknown attack_share 'some'"),
        (config("fabricated-sizes", "fl-sign"), "in fl-sign clients count alike, for all claimed sizes"),
        (config("random-update", "centralized"), "no client can attack it"),
        (config("little-is-enough", collude=False), "so they collude: leave out collude = false"),
        (
            config("random-update", "fl-std-dp", scheme__noise_multiplier=1.0, scheme__clip_norm=1.0,
                   scheme__noise="continuous"),
            "use --noise integer",
        ),
        (config("nowhere:Attack"), "cannot import 'nowhere'"),
        (config("laconic.errors:one_line"), "takes no fraction"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_data_are_loaded(given: RunConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_config(given)


def test_two_classes_have_no_backdoor(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text("who,x,target\n" + "".join(f"{n % 10},{n},{n % 2}\n" for n in range(200)))
    values = config("in-backdoor", source=0, target=1).to_dict()
    values["data"] = {"dataset": str(file), "client_column": "who"}
    values["sampler"]["cohort_size"] = 10
    with pytest.raises(ConfigError, match="needs three classes or more"):
        settle(RunConfig.from_dict(values))
    values["attack"] |= {"source": "cats"}
    with pytest.raises(ConfigError, match="the classes of these data have no names"):
        settle(RunConfig.from_dict(values))
