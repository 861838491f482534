# SPDX-License-Identifier: Apache-2.0
"""How many files and sockets a service may have open: each connection takes one, whoever makes it."""

import resource
from contextlib import suppress


def allow_all_descriptors() -> None:
    """Raise this process's limit as far as the machine's operator allows.

    The usual limit of 1024 is for programs that use select, which a service does not. A stranger's connections reach it
    within seconds, and the service can then neither store an artifact nor take a worker.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A kernel whose own bound was lowered since then refuses: the service starts as it is.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
