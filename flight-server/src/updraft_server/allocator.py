# SPDX-License-Identifier: Apache-2.0
"""Keeps the C allocator from giving the memory of every batch back to the kernel and asking for it again.

A front allocates and frees a buffer of a batch's size several times for each message. By default glibc maps such
buffers one by one, so that every page of every message faults and is cleared anew: that took half of the front's CPU.
"""

import ctypes

_MIB = 1024 * 1024

# Parameter numbers of mallopt(3).
_TRIM_THRESHOLD = -1
_MMAP_THRESHOLD = -3
_ARENA_MAX = -8

_LARGEST_MMAP_THRESHOLD_BYTES = 32 * _MIB
_RETAINED_BYTES = 256 * _MIB


def retain_freed_memory() -> bool:
    """Tune the allocator; call it before the process starts threads. False where the C library has no mallopt."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    # One arena: a buffer that one thread freed serves the next thread's message while it is still in the cache.
    tuned = (
        mallopt(_ARENA_MAX, 1),
        mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD_BYTES),
        mallopt(_TRIM_THRESHOLD, _RETAINED_BYTES),
    )
    return all(tuned)
