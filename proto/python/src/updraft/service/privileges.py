# SPDX-License-Identifier: Apache-2.0
"""Reduction of root's capabilities to the few that a service needs to open its port and its files.

Call `keep_few_capabilities` before the process starts threads: capabilities belong to a thread, and new threads inherit
them. This module does not limit the capabilities that a program gains when the service executes it.
"""

import ctypes
import os
import struct

CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, NET_BIND_SERVICE = 0, 1, 2, 3, 10
KEPT = (CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, NET_BIND_SERVICE)
"""Kept capabilities. Other users may own files that the service needs: token and key files that it rereads, the audit
file, a writer's directories."""

_VERSION_3 = 0x20080522
_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 47, 4
# Lower 32 bits of the effective, permitted and inheritable sets, then their upper 32 bits.
_SETS = "=6I"

_libc = ctypes.CDLL(None, use_errno=True)


def keep_few_capabilities() -> None:
    """Permanently drop root's capabilities other than KEPT; raise OSError if that fails.

    Do nothing if the process runs as another user: somebody granted that user's capabilities on purpose.
    """
    if os.geteuid() != 0:
        return
    header = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION_3, 0))
    sets = ctypes.create_string_buffer(struct.calcsize(_SETS))
    _checked(_libc.capget(header, sets))
    _, permitted, *_ = struct.unpack(_SETS, sets.raw)
    # All kept capabilities lie in the lower 32 bits.
    kept = permitted & sum(1 << capability for capability in KEPT)
    # This fails harmlessly on kernels before 4.3, which have no ambient capabilities.
    _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    _checked(_libc.capset(header, ctypes.create_string_buffer(struct.pack(_SETS, kept, kept, 0, 0, 0, 0))))


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"capabilities: {os.strerror(number)}")
