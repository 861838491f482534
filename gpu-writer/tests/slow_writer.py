# SPDX-License-Identifier: Apache-2.0
"""A writer whose storage is slow, as a process of its own: `python slow_writer.py ROOT READY_FILE QUOTA_BYTES`."""

import sys
import threading
import time
from pathlib import Path

from updraft_writer.cli import use_little_memory

_BYTES_PER_SECOND = 40 << 20


async def _serve(root: str, ready_file: str, quota_bytes: str) -> None:
    from updraft_writer.settings import ServeSettings
    from updraft_writer.sinks.local import LocalStorage
    from updraft_writer.writer import Writer

    line = threading.Lock()

    class SlowStorage(LocalStorage):
        """All files share one slow line."""

        def write(self, piece: bytes) -> None:
            with line:
                time.sleep(len(piece) / _BYTES_PER_SECOND)
            super().write(piece)

    settings = ServeSettings(
        listen="127.0.0.1:0",
        admin_listen="",
        metrics_listen="127.0.0.1:0",
        root=(root,),
        ready_file=Path(ready_file),
        quota_bytes=int(quota_bytes),
        encode_threads=2,
    )
    writer = Writer(settings)
    writer.factory.storage = lambda path: SlowStorage(Path(path))
    await writer.run()


if __name__ == "__main__":
    use_little_memory()
    import uvloop

    uvloop.run(_serve(*sys.argv[1:]))
