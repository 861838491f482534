# SPDX-License-Identifier: Apache-2.0
"""Writer with slow storage, as a process of its own: ROOT READY_FILE QUOTA_BYTES [BYTES_PER_SECOND].

All files share one line; with BYTES_PER_SECOND each file has its own, as in an object store.
"""

import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from updraft_writer.process import use_little_memory

if TYPE_CHECKING:
    # Imported at run time, it would load pyarrow before `use_little_memory`.
    from updraft_writer.pieces import Piece

_SHARED_BYTES_PER_SECOND = 80 << 20


async def _serve(root: str, ready_file: str, quota_bytes: str, own_bytes_per_second: str = "") -> None:
    from updraft_writer.settings import ServeSettings
    from updraft_writer.sinks.local import LocalStorage
    from updraft_writer.writer import Writer

    line = nullcontext() if own_bytes_per_second else threading.Lock()
    bytes_per_second = int(own_bytes_per_second or _SHARED_BYTES_PER_SECOND)

    class SlowStorage(LocalStorage):
        def write(self, piece: "Piece") -> None:
            with line:
                time.sleep(len(piece) / bytes_per_second)
            super().write(piece)

    settings = ServeSettings(
        listen="127.0.0.1:0",
        admin_listen="",
        metrics_listen="127.0.0.1:0",
        root=(root,),
        ready_file=Path(ready_file),
        quota_bytes=int(quota_bytes),
    )
    writer = Writer(settings)
    writer.factory.storage = lambda path, *_, **__: SlowStorage(Path(path))
    await writer.run()


if __name__ == "__main__":
    use_little_memory()
    import uvloop

    uvloop.run(_serve(*sys.argv[1:]))
