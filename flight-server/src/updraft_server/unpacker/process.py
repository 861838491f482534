# SPDX-License-Identifier: Apache-2.0
"""Program of an unpacker: gives up its rights, unpacks standard input into its working directory, reports the outcome.

It starts with an empty environment and two descriptors: the archive, and as standard output the socket to the front.
"""

import contextlib
import os
import resource
import sys

from updraft_server.ipc.unpacking import ROOM_GRANTED, RoomRequest, UnpackBounds, UnpackOutcome, UnpackVerdict
from updraft_server.linux.capabilities import DAC_READ_SEARCH, give_up_capabilities
from updraft_server.linux.landlock import confine_files
from updraft_server.linux.out_of_memory import die_first
from updraft_server.linux.process_control import end_with_parent, forbid_new_privileges, hide_memory
from updraft_server.unpacker.archive import RefusedArchiveError, unpack
from updraft_server.unpacker.refused_calls import refuse_calls

_MAX_DESCRIPTORS = 32


def main() -> None:
    """Run with the bounds and the process id of the front as arguments."""
    bounds, front = UnpackBounds.decode(sys.argv[1]), int(sys.argv[2])
    end_with_parent()
    if os.getppid() != front:
        sys.exit("the front is gone")
    _give_up(bounds)
    sys.stdout.buffer.write(_verdict(bounds).encode())
    sys.stdout.buffer.flush()


def _give_up(bounds: UnpackBounds) -> None:
    """Give up rights for good: the limits are hard, and hold before the first byte of the archive is read."""
    die_first()
    hide_memory()
    forbid_new_privileges()
    # Python's library, which it still reads, may belong to another user.
    give_up_capabilities(but=DAC_READ_SEARCH)
    for kind, limit in (
        (resource.RLIMIT_AS, bounds.memory_bytes),
        (resource.RLIMIT_DATA, bounds.memory_bytes),
        (resource.RLIMIT_FSIZE, bounds.total_bytes),
        (resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (allowed, allowed))
    # SIGXCPU comes at the lower of the two limits, and tells this end from others.
    resource.setrlimit(resource.RLIMIT_CPU, (bounds.cpu_seconds, bounds.cpu_seconds + 1))
    # Python's library imports a codec now and then.
    confine_files(readable=(os.path.dirname(os.__file__),), writable=(".",))
    with contextlib.suppress(OSError):
        # Some kernels, and the sandboxes of some containers, have no filters.
        refuse_calls()


def _verdict(bounds: UnpackBounds) -> UnpackVerdict:
    try:
        unpack(sys.stdin.buffer, ".", bounds, _ask_for_room)
    except RefusedArchiveError as error:
        return UnpackVerdict(UnpackOutcome.REFUSED, str(error))
    except OSError as error:
        return UnpackVerdict(UnpackOutcome.FAULT, error_number=error.errno or 0)
    return UnpackVerdict(UnpackOutcome.UNPACKED)


def _ask_for_room(room_bytes: int) -> None:
    os.write(sys.stdout.fileno(), RoomRequest(room_bytes).encode())
    if os.read(sys.stdout.fileno(), len(ROOM_GRANTED)) != ROOM_GRANTED:
        sys.exit("the front is gone")
