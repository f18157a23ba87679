"""What other installed packages add by entry points: commands, data sets, front ends.

Only names of installed packages are looked up here. No module is imported because a file or a message names it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

COMMANDS = "laconic.commands"
"""A click command by the name of the entry point."""
DATA_SETS = "laconic.datasets"
"""A `SourceInfo` by the name of the data set."""
FRONT_ENDS = "laconic.front_ends"
"""A subclass of `FileFrontEnd` by the name of the front end."""


def added(group: str) -> dict[str, EntryPoint]:
    """The entry points of installed packages in this group, by name and in the order of their names.

    Installers write them in different orders, and help and pages are to be the same everywhere.
    """
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}
