# SPDX-License-Identifier: Apache-2.0
"""How many files and sockets a service may have open: each connection takes one, whoever makes it."""

import resource
from contextlib import suppress

# Flight over TCP, Flight over a Unix socket, and health. The last quarter is for files, workers and pages.
_LISTENERS = 3
# Of a kernel that sets no limit; gRPC takes 32 bits.
_UNLIMITED = 1 << 20


def allow_all_descriptors() -> None:
    """Raise this process's limit as far as the machine's operator allows.

    The usual limit of 1024 is for programs that use select, which a service does not. A stranger's connections reach it
    within seconds, and the service can then neither store an artifact nor take a worker.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A kernel whose own bound was lowered since then refuses: the service starts as it is.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def most_connections() -> int:
    """How many connections one listener of gRPC may have, so that all of them together leave descriptors for the rest.

    gRPC hangs up on others at once. Without that it takes every descriptor, and then accepts nobody for as long as the
    connections last.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (_UNLIMITED if limit == resource.RLIM_INFINITY else min(limit, _UNLIMITED)) // (_LISTENERS + 1)
