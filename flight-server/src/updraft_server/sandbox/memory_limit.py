# SPDX-License-Identifier: Apache-2.0
"""Limit of this process's address space for one exchange: allocations beyond it raise MemoryError."""

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def address_space(limit_bytes: int) -> Iterator[None]:
    """Apply the limit in the block; 0 means no limit. The hard limit stays, so the next exchange may have another."""
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
