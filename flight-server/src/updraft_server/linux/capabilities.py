# SPDX-License-Identifier: Apache-2.0
"""Linux capabilities (parts of root's power): which capabilities this process holds, and how it gives them up."""

import ctypes
import os
import struct

from updraft_server.linux.system_calls import checked, libc

_PR_CAPBSET_READ, _PR_CAPBSET_DROP = 23, 24
_PR_CAP_AMBIENT, _AMBIENT_IS_SET, _AMBIENT_CLEAR_ALL = 47, 1, 4
_VERSION_3 = 0x20080522
_SETPCAP = 8
DAC_READ_SEARCH = 2
"""Capability to read files of other users."""
SYS_ADMIN = 21
"""Capability to mount, among much else."""
# Effective, permitted and inheritable: first the three lower halves, then the three upper halves.
_SETS = "=6I"
_WORD = 0xFFFFFFFF
_ALL = range(64)


def held_capabilities() -> int:
    """Return the capabilities that this process, or a program that it starts, could use, as bits."""
    _, permitted, inheritable = _capabilities()
    return permitted | inheritable


def holds_capability(capability: int) -> bool:
    """Return whether this process may use the capability now."""
    effective, _, _ = _capabilities()
    return bool(effective >> capability & 1)


def close_bounding_set() -> None:
    """Keep programs that this process starts from now on from gaining capabilities. Do nothing without CAP_SETPCAP.

    The process keeps the capabilities that it holds.
    """
    if not holds_capability(_SETPCAP):
        # Without this right, it is enough that new privileges are forbidden: no program can gain capabilities then.
        return
    for capability in _ALL:
        if libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) < 0:
            break
        checked(libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0), "capabilities")


def give_up_capabilities(*, but: int | None = None) -> None:
    """Give up every capability for good, or every one except `but`; raises OSError.

    The process must have given up new privileges. A process of an ordinary user keeps its ambient capabilities, because
    the operator has granted them on purpose.
    """
    if not held_capabilities():
        return
    kept = 0 if but is None else _capabilities()[1] & 1 << but
    if 0 in os.getresuid():
        # Kernels before 4.3 have no ambient capabilities.
        libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    else:
        kept = sum(1 << bit for bit in _ALL if libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_IS_SET, bit, 0, 0) == 1)
    sets = struct.pack(_SETS, *[kept & _WORD] * 3, *[kept >> 32] * 3)
    checked(libc.capset(_header(), ctypes.create_string_buffer(sets)), "capabilities")


def _capabilities() -> tuple[int, int, int]:
    """Return the effective, permitted and inheritable capabilities."""
    sets = ctypes.create_string_buffer(struct.calcsize(_SETS))
    checked(libc.capget(_header(), sets), "capabilities")
    words = struct.unpack(_SETS, sets.raw)
    effective, permitted, inheritable = (low | high << 32 for low, high in zip(words[:3], words[3:], strict=True))
    return effective, permitted, inheritable


def _header() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("=Ii", _VERSION_3, 0))
