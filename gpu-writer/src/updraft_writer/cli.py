# SPDX-License-Identifier: Apache-2.0
"""Entry point of `updraft-writer`: configures memory allocation before importing anything that allocates."""

import os

from updraft.service.allocator import return_freed_memory


def use_little_memory() -> None:
    """Return freed memory to the system at once. Call it before pyarrow is imported and before any thread starts."""
    # Arrow's other allocators keep freed pages per thread; Arrow chooses one when its library is loaded.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    return_freed_memory()


def main() -> None:
    """Run `updraft-writer`."""
    use_little_memory()
    from updraft_writer.commands import run

    run()
