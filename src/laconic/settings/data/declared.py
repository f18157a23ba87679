"""What the user says of data whose records must not decide it: the number of classes, and the channels of pictures."""

from __future__ import annotations

from laconic.data.federated import FederatedData
from laconic.errors import ConfigError, several
from laconic.options.sections import DataSection

_SAID = {
    "⟨classes⟩": "⟨classes⟩ 3 (how many there are), ⟨classes⟩ cat,dog (their names) or ⟨classes⟩ 1 (quantities)",
    "⟨classes⟩ cat,dog": "⟨classes⟩ cat,dog (the names of all folders of classes)",
    "⟨channels⟩": "⟨channels⟩ 1 (grey) or ⟨channels⟩ 3 (colours)",
}


def declared_names(data: DataSection) -> tuple[str, ...]:
    """The classes by name, in their order; none if only their number is said, or nothing."""
    text = (data.classes or "").strip()
    if not text or text.isdecimal():
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        raise ConfigError(
            f"⟨classes⟩ {data.classes}: give a number such as 3, or the names of all classes, each once: cat,dog"
        )
    return names


def declared_classes(data: DataSection) -> int | None:
    """How many classes are declared, 1 for quantities; None if nothing is said."""
    names = declared_names(data)
    if names or data.classes is None:
        return len(names) or None
    if int(data.classes) < 1:
        raise ConfigError(f"⟨classes⟩ {data.classes}: there are two classes or more, or 1 for quantities")
    return int(data.classes)


def check_declared(federation: FederatedData) -> None:
    """Refuse to let private records decide the shape of a model that is released: one record would show in it."""
    if federation.inferred:
        raise ConfigError(
            several(
                [
                    "in a private run no record may decide the shape of the released model, so say it beforehand: give"
                    f" {_SAID[flag]}"
                    for flag in federation.inferred
                ]
            )
        )
