"""How many classes there are. A model gets one output for each, so one wrong label must not make a million of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from laconic.data.files.user_file import refused

MANY, TIMES = 100, 10
"""More classes than MANY, and more than TIMES those that occur: then the labels are numbers of another kind."""


class ClassCount:
    """Looks at one client's targets after another's; keeps the distinct classes and whose the largest is.

    With a `declared` number of classes (1 for quantities) the targets decide nothing: they are only checked.
    """

    def __init__(self, declared: int | None = None) -> None:
        self._declared = declared
        self._seen: set[int] = set()
        self._largest = -1
        self._whose: Path | str = ""
        self._real = False

    def add(self, targets: Tensor, whose: Path | str) -> None:
        """`whose` names the file in messages."""
        if self._declared is not None and targets.is_floating_point() != (self._declared == 1):
            said = "quantities (⟨classes⟩ 1)" if self._declared == 1 else f"{self._declared} classes (⟨classes⟩)"
            found = "numbers such as 0.5" if targets.is_floating_point() else "whole numbers"
            raise refused(whose, f"its targets are {found}, and {said} were declared; write 1.0 for 1, or change one")
        if targets.is_floating_point():
            self._real = True
            return
        found = np.unique(targets.numpy()).tolist()
        if found[0] < 0:
            raise refused(whose, "class targets must be numbered from 0, but there is a negative one; renumber them")
        if found[-1] > self._largest:
            self._largest, self._whose = found[-1], whose
        self._seen.update(found)

    @property
    def number(self) -> int:
        """The number of classes, or 1 for real-valued targets."""
        if self._real:
            return 1
        classes = self._largest + 1
        if self._declared is not None:
            if classes > self._declared:
                raise refused(
                    self._whose,
                    f"has the class target {self._largest}, but ⟨classes⟩ declares 0 to {self._declared - 1}: renumber"
                    " the classes, or declare all of them",
                )
            return self._declared
        if classes > max(MANY, TIMES * len(self._seen)):
            raise refused(
                self._whose,
                f"its largest class target would make {classes:,} classes, but only {len(self._seen):,} occur in all;"
                " renumber the classes from 0 without gaps (np.unique with return_inverse), or write 1.0 for 1 if they"
                " are quantities",
            )
        return max(2, classes)


def num_classes(targets: Tensor, whose: Path | str, declared: int | None = None) -> int:
    """The number of classes among the targets of one source."""
    count = ClassCount(declared)
    count.add(targets, whose)
    return count.number
