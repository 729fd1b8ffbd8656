"""What is freed goes back to the system: by itself glibc keeps it for the next time.

Once a large block was freed, glibc takes blocks of its size from the heaps of its threads, whose
holes stay with the process: an exporter that had read a page of 60 MiB held 150 MiB from then on.
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_MMAP_THRESHOLD: Final = -3  # of malloc.h
_LARGE: Final = 1 << 20


def give_back_large_blocks() -> None:
    """Have blocks of a mebibyte or more mapped each by itself; without glibc do nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
