"""The data sets that come with the library, in the order in which they are shown.

A new one is a module in `datasets/` with a loader and a `SourceInfo`, and its name in the list below. From outside
the package, `register` does the same.
"""

from __future__ import annotations

from laconic.data.datasets.breast_cancer import BREAST_CANCER
from laconic.data.datasets.cifar import CIFAR10
from laconic.data.datasets.digits import DIGITS
from laconic.data.datasets.faces import FACES
from laconic.data.datasets.hapt import HAPT
from laconic.data.datasets.imdb import IMDB
from laconic.data.datasets.imdb_text import IMDB_TEXT
from laconic.data.datasets.lfw import LFW
from laconic.data.datasets.mnist import FASHION_MNIST, MNIST
from laconic.data.datasets.toxicity import TOXICITY
from laconic.data.ehr.sources import EHR_SOURCES
from laconic.data.registry import SOURCES, Source, SourceInfo, load_source, register, sources_kept
from laconic.data.synthetic import SYNTHETIC

__all__ = ["SOURCES", "Source", "SourceInfo", "load_source", "register", "sources_kept"]

for _info in (
    DIGITS,
    BREAST_CANCER,
    MNIST,
    FASHION_MNIST,
    CIFAR10,
    LFW,
    FACES,
    IMDB,
    IMDB_TEXT,
    TOXICITY,
    HAPT,
    *(_source.info for _source in EHR_SOURCES.values()),
    SYNTHETIC,
):
    register(_info)
