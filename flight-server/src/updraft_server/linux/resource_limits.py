# SPDX-License-Identifier: Apache-2.0
"""Limits that the kernel enforces on a process and everything it starts: descriptors, files, address space.

A descriptor that was sent over a Unix socket and not received yet is in flight. The kernel counts all of a user's
descriptors in flight together. If this count exceeds a process's own limit of open files, the process cannot send
another descriptor. So a function that leaves many descriptors in sockets could keep the zygote from handing over
workers. This does not apply to root.

These limits do not cover a worker's memory. RLIMIT_DATA counts reserved private memory, used or not. Measured: 143 MiB
(49 in use) after importing pandas, 1192 (295 in use) after freeing a table of ten million rows, 2797 (298 in use) with
200 threads, and 5288 (295 in use) with an untouched `np.zeros` of 4 GiB. A limit that allows all of these would exceed
the memory of a container. RLIMIT_DATA also applies to each process by itself and does not count shared memory (`mmap`,
`memfd_create`), so it cannot limit a worker.

No limit covers data that waits in sockets either. The kernel reports the bytes in all sockets of a network namespace
(NETLINK_SOCK_DIAG) and the memory of a container that sockets use (`sock` in memory.stat), but not to which process a
socket belongs. Other processes cannot list the descriptors of a process that hides its memory. The sizes of descriptor
tables (`FDSize`) are not a bound, because a descriptor in flight is in no table. If each worker were charged for what
its table could hold, one function could cause the pool to kill other workers.
"""

import contextlib
import resource
from collections.abc import Iterator

# Headroom above the workers' limit. A process that sends file descriptors can have about 250 of them in flight.
_RESERVE = 2048


def allow_more_than(descriptors_of_workers: int) -> None:
    """Set the limit of open files of this process and its later children above the workers' limit, if allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors_of_workers + _RESERVE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit_of_workers(descriptors: int) -> int:
    """Return a limit of open files for workers. It leaves a reserve to the calling process, the workers' parent."""
    own, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return descriptors if own == resource.RLIM_INFINITY else min(descriptors, own - min(_RESERVE, own // 2))


def limit_resources(*, file_bytes: int, descriptors: int) -> None:
    """Set the limits of this process for good. Limits of the process that are already tighter do not change.

    Raising a hard limit needs CAP_SYS_RESOURCE, which workers give up.
    """
    descriptors = limit_of_workers(descriptors)
    for which, limit in ((resource.RLIMIT_FSIZE, file_bytes), (resource.RLIMIT_NOFILE, descriptors)):
        soft, hard = resource.getrlimit(which)
        resource.setrlimit(which, (_smaller(soft, limit), _smaller(hard, limit)))


def _smaller(inherited: int, limit: int) -> int:
    return limit if inherited == resource.RLIM_INFINITY else min(inherited, limit)


@contextlib.contextmanager
def address_space(limit_bytes: int) -> Iterator[None]:
    """Limit the address space in the block. Allocations beyond the limit raise MemoryError; 0 means no limit.

    The hard limit does not change, so a later exchange may set another limit.
    """
    soft, hard = before = resource.getrlimit(resource.RLIMIT_AS)
    tighter = soft == resource.RLIM_INFINITY or limit_bytes < soft
    if limit_bytes <= 0 or not tighter:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
