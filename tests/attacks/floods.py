# SPDX-License-Identifier: Apache-2.0
"""Attempts to fill the pool's log, or the memory of its front, with output. The pool drops output beyond its limit.

Each attempt ends on its own, because the pool does not end workers for their output.
"""

from __future__ import annotations

from typing import Any

from tests.attacks.attempts import Attempts

ATTEMPTS = Attempts()
_BYTES = 48 << 20


@ATTEMPTS
def short_lines(target: Any) -> Any:
    import os

    lines = b"y\n" * (1 << 15)
    for _ in range(_BYTES // 8 // len(lines)):
        os.write(1, lines)


@ATTEMPTS
def a_line_of_megabytes(target: Any) -> Any:
    import os

    piece = b"y" * (1 << 20)
    for _ in range(_BYTES // len(piece)):
        os.write(2, piece)
    os.write(2, b"\n")


@ATTEMPTS
def lines_of_a_program_and_of_threads(target: Any) -> Any:
    import os
    import subprocess
    import threading

    def writes() -> None:
        for _ in range(8):
            os.write(1, b"of a thread\n" * (1 << 13))

    threads = [threading.Thread(target=writes) for _ in range(8)]
    for thread in threads:
        thread.start()
    subprocess.run(["sh", "-c", f"yes 'of a program' | head -c {_BYTES // 4}"], check=True)
    for thread in threads:
        thread.join()
