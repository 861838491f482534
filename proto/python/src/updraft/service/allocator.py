# SPDX-License-Identifier: Apache-2.0
"""Tuning of the C allocator for batch-sized buffers, which a service allocates and frees with every message.

By default glibc maps each such buffer separately, so every page of every message faults and is zeroed again. These
faults took half of the CPU time of a pool's front, and much of the CPU time of a worker whose function uses pandas. So
the front and the workers keep freed memory: the front keeps a lot, and each worker keeps enough for a few batches. A
writer promises a bound on its memory, so it returns freed memory to the system.
"""

import ctypes
from contextlib import suppress

_MIB = 1024 * 1024

# Parameter numbers of mallopt(3).
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8

_LARGEST_MMAP_THRESHOLD_BYTES = 32 * _MIB
_RETAINED_BYTES = 256 * _MIB
_RETAINED_FOR_BATCHES_BYTES = 64 * _MIB
# Buffers larger than this are mapped separately, and up to twice this size stays free at the end of a heap. The
# connector's batches are a little over 4 MiB. When every batch was mapped separately, a writer used 50% more CPU time.
_MAPPED_ALONE_BYTES = 8 * _MIB
_RETURNED_BEYOND_BYTES = 16 * _MIB


def retain_freed_memory() -> None:
    """Keep freed memory; call this before the process starts threads. Do nothing if the C library has no mallopt."""
    # With one arena, a thread can reuse a buffer that another thread has freed while the buffer is still in the CPU
    # cache.
    _tune(arenas=1, mmap_threshold_bytes=_LARGEST_MMAP_THRESHOLD_BYTES, trim_threshold_bytes=_RETAINED_BYTES)


def retain_freed_batches() -> None:
    """Keep freed memory for the next batch; each thread keeps its own heap. Do nothing without mallopt."""
    _tune(mmap_threshold_bytes=_LARGEST_MMAP_THRESHOLD_BYTES, trim_threshold_bytes=_RETAINED_FOR_BATCHES_BYTES)


def return_freed_memory() -> None:
    """Return freed memory to the system; call this before threads start. Do nothing without mallopt."""
    _tune(arenas=2, mmap_threshold_bytes=_MAPPED_ALONE_BYTES, trim_threshold_bytes=_RETURNED_BEYOND_BYTES)


def clean_freed_memory() -> None:
    """Return every free page to the system, even pages between used memory. This takes milliseconds."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _tune(*, mmap_threshold_bytes: int, trim_threshold_bytes: int, arenas: int | None = None) -> None:
    with suppress(AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, mmap_threshold_bytes)
        mallopt(_TRIM_THRESHOLD, trim_threshold_bytes)
        if arenas is not None:
            mallopt(_ARENA_MAX, arenas)
