# SPDX-License-Identifier: Apache-2.0
"""Process that serves clients. It configures memory allocation before it imports anything that allocates.

`updraft_writer.supervisor` starts this process as `python -m updraft_writer.process`.
"""

import os
import sys

from updraft.service.allocator import return_freed_memory
from updraft.service.parent import follow_parent
from updraft.service.privileges import keep_few_capabilities


def use_little_memory() -> None:
    """Make freed memory return to the system at once. Call this before any thread starts.

    Raises RuntimeError if pyarrow is already imported, because Arrow chooses its allocator when it is loaded.
    """
    if "pyarrow" in sys.modules:
        raise RuntimeError("pyarrow is already imported; use_little_memory has to come first")
    # Arrow's other allocators keep freed pages for each thread.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    return_freed_memory()


def main() -> None:
    """Serve clients until the writer has drained."""
    follow_parent()
    keep_few_capabilities()
    use_little_memory()
    from updraft.service.heartbeat import Heartbeat
    from updraft_writer.settings import ServeSettings
    from updraft_writer.supervisor import SETTINGS_VARIABLE
    from updraft_writer.writer import serve

    serve(ServeSettings.model_validate_json(os.environ.pop(SETTINGS_VARIABLE)), Heartbeat.inherited())


if __name__ == "__main__":
    main()
