# SPDX-License-Identifier: Apache-2.0
"""Limits that the kernel enforces on a worker and everything it starts, and that none of these can raise again.

Memory is not among them. RLIMIT_DATA counts reserved private memory, used or not. Measured: 143 MiB (49 in use) after
importing pandas, 1192 (295 in use) after freeing a table of ten million rows, 2797 (298 in use) with 200 threads, and
5288 (295 in use) with an untouched `np.zeros` of 4 GiB. A limit that lets these pass exceeds the memory of a container.
It also applies to each process by itself and does not count shared memory (`mmap`, `memfd_create`), so it cannot limit
a worker.

Data that waits in sockets has no limit either. The kernel reports what all sockets of a network namespace hold
(NETLINK_SOCK_DIAG) and what they take of a container (`sock` in memory.stat), but not whose a socket is. The
descriptors of a hidden process cannot be listed, and a descriptor in flight is in no process's table, so the sizes of
these tables (`FDSize`) are no bound. If each worker were charged for what its table could hold, one function could get
its neighbours killed.
"""

import resource

from updraft_server.linux.descriptors_in_flight import limit_of_workers


def limit_resources(*, file_bytes: int, descriptors: int) -> None:
    """Set the limits in this process for good; tighter ones stay.

    Raising a hard limit takes CAP_SYS_RESOURCE, which a worker gives up.
    """
    descriptors = limit_of_workers(descriptors)
    for which, limit in ((resource.RLIMIT_FSIZE, file_bytes), (resource.RLIMIT_NOFILE, descriptors)):
        soft, hard = resource.getrlimit(which)
        resource.setrlimit(which, (_smaller(soft, limit), _smaller(hard, limit)))


def _smaller(inherited: int, limit: int) -> int:
    return limit if inherited == resource.RLIM_INFINITY else min(inherited, limit)
