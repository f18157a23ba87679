"""The data sets that come with the library, in the order in which they are shown.

A new one is a module in `datasets/` with a loader and a `SourceInfo`, and its name in the list below. Another package
adds one with an entry point in the group `laconic.datasets` that names its `SourceInfo`. A program of the user's own
calls `register`.
"""

from __future__ import annotations

import warnings

from laconic.data.datasets.embedded import BREAST_CANCER, DIGITS
from laconic.data.datasets.imdb import IMDB, IMDB_TEXT
from laconic.data.datasets.pictures import CIFAR10, FASHION_MNIST, MNIST
from laconic.data.ehr.sources import EHR_SOURCES
from laconic.data.registry import SOURCES, Source, SourceInfo, load_source, register, sources_kept
from laconic.data.synthetic import SYNTHETIC
from laconic.errors import one_line
from laconic.own_code import DATA_SETS, added

__all__ = ["SOURCES", "Source", "SourceInfo", "load_source", "register", "sources_kept"]

for _info in (
    DIGITS,
    BREAST_CANCER,
    MNIST,
    FASHION_MNIST,
    CIFAR10,
    IMDB,
    IMDB_TEXT,
    *(_source.info for _source in EHR_SOURCES.values()),
    SYNTHETIC,
):
    register(_info)


def register_added() -> None:
    """Make the data sets of other installed packages known; one with the name of ours is left out."""
    for name, point in added(DATA_SETS).items():
        if name in SOURCES:
            continue
        try:
            register(point.load())
        except Exception as error:  # another package's failure must not end a run on other data
            warnings.warn(f"the data set {name} ({point.value}) cannot be loaded: {one_line(error, 200)}", stacklevel=2)


register_added()
