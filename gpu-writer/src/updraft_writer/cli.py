# SPDX-License-Identifier: Apache-2.0
"""Entry point of `updraft-writer`: decides how memory is allocated before anything is imported that allocates it."""

import os

from updraft.service.allocator import return_freed_memory


def use_little_memory() -> None:
    """Give freed memory back at once; for a process that has not imported pyarrow and has no threads yet."""
    # Arrow's other pools keep freed pages for each thread; the choice is made when its library is loaded.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    return_freed_memory()


def main() -> None:
    """Run `updraft-writer`."""
    use_little_memory()
    from updraft_writer.commands import run

    run()
