# SPDX-License-Identifier: Apache-2.0
"""Limits on open files and sockets: each connection takes one descriptor, even from an unknown client."""

import resource
from contextlib import suppress

# Flight over TCP, Flight over a Unix socket, and health get a quarter of the descriptors each. The last quarter is for
# files, workers and pages.
_LISTENERS = 3
# Limit assumed if the kernel sets none; gRPC's option has only 32 bits.
_UNLIMITED = 1 << 20


def allow_all_descriptors() -> None:
    """Raise this process's soft limit to its hard limit.

    The usual soft limit of 1024 exists for programs that use select, which a service does not. A stranger's connections
    could reach it within seconds, and the service could then neither store an artifact nor take a worker.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The kernel refuses if fs.nr_open was lowered meanwhile: the service then starts with its current limit.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_connections() -> int:
    """Return how many connections one gRPC listener may have, so that the listeners leave descriptors for other uses.

    gRPC closes further connections at once. Without this limit, connections could take every descriptor, and the
    service would accept no client until some of them close.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (_UNLIMITED if limit == resource.RLIM_INFINITY else min(limit, _UNLIMITED)) // (_LISTENERS + 1)
