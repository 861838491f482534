# SPDX-License-Identifier: Apache-2.0
"""Limits that keep functions from using up the descriptors that their user may have in flight between processes.

A descriptor that was sent over a Unix socket and not received yet is in flight. The kernel counts all of a user's
descriptors in flight together, and does not let a process send another one if that count exceeds the process's own
limit of open files. A function that leaves many in sockets would thus keep the zygote from handing workers over. Root
is exempt from this.
"""

import resource

# Room above the limit for processes that send at the same time, some 250 descriptors each.
_RESERVE = 2048


def allow_more_than(descriptors_of_workers: int) -> None:
    """Raise this process's limit of open files, which its children inherit, above the workers' limit if allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors_of_workers + _RESERVE
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit_of_workers(descriptors: int) -> int:
    """Return a limit of open files for workers that leaves a reserve to the caller, their parent process."""
    own, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return descriptors if own == resource.RLIM_INFINITY else min(descriptors, own - min(_RESERVE, own // 2))
