# SPDX-License-Identifier: Apache-2.0
"""What the table's exchanges run: functions that stop where a test wants them. They travel whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any


def well(column: Any) -> Any:
    """The answer of a good exchange."""
    import pyarrow as pa

    return pa.array(["well"] * len(column))


def note_and_wait(directory: str) -> None:
    """Leave this worker's pid in `reached`, and return once there is a file `go`."""
    import os
    import time
    from pathlib import Path

    written = Path(directory, f"pid-{os.getpid()}")
    written.write_text(str(os.getpid()))
    written.rename(Path(directory, "reached"))
    while not Path(directory, "go").exists():
        time.sleep(0.01)


def computing(directory: Path) -> Callable[[Any], Any]:
    """Waits within its first batch."""
    where = str(directory)

    def waits(column: Any) -> Any:
        note_and_wait(where)
        return well(column)

    return waits


class _Loads:
    """Pickled as a call: what unpickles it waits."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def __reduce__(self) -> tuple[Any, ...]:
        return note_and_wait, (self._directory,)


def loading(directory: Path) -> Callable[[Any], Any]:
    """Waits while it is unpickled."""
    slow = _Loads(str(directory))

    def loaded(column: Any) -> Any:
        assert slow is None
        return well(column)

    return loaded


def noting(directory: Path) -> Callable[[Any], Any]:
    """Leaves its pid when it is called, and never waits."""
    where = str(directory)

    def notes(column: Any) -> Any:
        import os
        from pathlib import Path

        Path(where, "go").touch()
        note_and_wait(where)
        assert os.getpid()
        return well(column)

    return notes


def replying(directory: Path, reply_bytes: int) -> Callable[[Any], Any]:
    """Answers with more than the connection takes at once."""
    where = str(directory)

    def replies(column: Any) -> Any:
        from pathlib import Path

        import pyarrow as pa

        answer = pa.array(["x" * reply_bytes] * len(column))
        Path(where, "go").touch()
        note_and_wait(where)
        return answer

    return replies
