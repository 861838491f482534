# SPDX-License-Identifier: Apache-2.0
"""Keeps functions from using up the descriptors that their user may have in flight between processes.

A descriptor that was sent over a Unix socket and not received yet is in flight. The kernel counts those of a user
together, and refuses to send another one to a process whose own limit of open files is below that number: a function
that leaves many in sockets would keep the zygote from handing workers over. Root's privileges lift that.
"""

import resource

# What processes that send at the same time may have beyond the limit, some 250 each.
_RESERVE = 2048


def allow_more_than(descriptors_of_workers: int) -> None:
    """Raise this process's limit of open files, which its children inherit, beyond that of workers if it may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors_of_workers + _RESERVE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit_of_workers(descriptors: int) -> int:
    """The limit of open files that leaves a reserve to the process that calls this, the parent of workers."""
    own, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return descriptors if own == resource.RLIM_INFINITY else min(descriptors, own - min(_RESERVE, own // 2))
