# SPDX-License-Identifier: Apache-2.0
"""Notes on errors that a function raises on a pool although it works on the driver.

The pool may lack a module, or the sandbox may block writing to a file.
"""

import contextlib
import errno
import os
import platform
import sys
from collections.abc import Iterator

_HOW_TO_ADD = (
    "and from what the session sends. Install the package there (where the pool runs in containers, build it into the"
    " image), or send it with the session: spark.submit.pyFiles, addPyFile or addArtifacts"
)
_WHERE_TO_WRITE = (
    "where functions can write to their worker's scratch directory (tempfile, TMPDIR), which is removed with the"
    " worker, and to the paths that the pool names for all its users: --writable-paths (in the chart"
    " workers.settings.writablePaths)"
)


def explain(error: BaseException) -> None:
    """Add a note (PEP 678) if the error or one of its causes is a missing module, or a file that the sandbox blocks."""
    for cause in _causes(error):
        if isinstance(cause, ModuleNotFoundError):
            error.add_note(f"It ran on {_pool()}, where functions import from the Python in {sys.prefix} {_HOW_TO_ADD}")
            return
        if isinstance(cause, OSError) and _is_out_of_reach(cause):
            error.add_note(f"It ran on {_pool()}, {_WHERE_TO_WRITE}")
            return


def _pool() -> str:
    return f"the Updraft pool at {platform.node()}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its chain of causes."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        # Skip __context__: the function may have handled that error, which then explains nothing.
        cause = cause.__cause__


def _is_out_of_reach(error: OSError) -> bool:
    """Return whether the pool, rather than the file's permissions, keeps workers from writing to a file."""
    if error.errno == errno.EROFS:
        return True
    path = error.filename
    if error.errno not in (errno.EACCES, errno.EPERM) or not isinstance(path, (str, bytes)):
        return False
    # access(2) checks the user's permissions and ignores Landlock.
    with contextlib.suppress(ValueError):
        above = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 - the path may be bytes
        return os.access(path if os.path.lexists(path) else above, os.W_OK)
    return False
