"""Keep freed memory for the next tensor instead of giving it back to the system page by page."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the numbers of glibc's malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20


def keep_freed_memory() -> bool:
    """Whether the C library could be told so.

    The activations of a step are a few megabytes each, freed and asked for again thousands of times in a round; new
    pages for them took an eighth of it. The process keeps what it used at most. Only glibc is asked.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1) and mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD))
