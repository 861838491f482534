# SPDX-License-Identifier: Apache-2.0
"""What a service that is started as root keeps of root's power: to open its port and its files, and nothing else.

To be called before the process starts threads: each has capabilities of its own, which it hands on to those it starts.
What programs gain that it starts is not decided here.
"""

import ctypes
import os
import struct

CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, NET_BIND_SERVICE = 0, 1, 2, 3, 10
KEPT = (CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, NET_BIND_SERVICE)
"""Files may belong to others: tokens and keys that are read again, an audit file, a writer's directories."""

_VERSION_3 = 0x20080522
_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
# Effective, permitted and inheritable: the lower halves, then the upper ones.
_SETS = "=6I"

_libc = ctypes.CDLL(None, use_errno=True)


def keep_few_capabilities() -> None:
    """Give up for good what is not in KEPT; raises OSError. Who is not root keeps what it was given on purpose."""
    if os.geteuid() != 0:
        return
    header = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION_3, 0))
    sets = ctypes.create_string_buffer(struct.calcsize(_SETS))
    _checked(_libc.capget(header, sets))
    _, permitted, *_ = struct.unpack(_SETS, sets.raw)
    # All of those that are kept lie in the lower half.
    kept = permitted & sum(1 << capability for capability in KEPT)
    # A kernel before 4.3 has no ambient ones.
    _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    _checked(_libc.capset(header, ctypes.create_string_buffer(struct.pack(_SETS, kept, kept, 0, 0, 0, 0))))


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capabilities: {os.strerror(number)}")
