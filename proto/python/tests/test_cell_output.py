# SPDX-License-Identifier: Apache-2.0
"""Lines of a pool's log that a notebook cell shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from updraft.spark.cell_output import CellOutput, printed_line

_START = "2026-11-28T17:27:18.086644Z [info     ] worker output                  "

_DROPPED = "2026-11-28T17:27:18Z [warning  ] worker output was dropped: print less, or raise --output-lines-per-second"


@pytest.mark.parametrize(
    ("log_line", "shown"),
    [
        (f"{_START}function=talks line='plain 2' process=front worker=1-05", "[talks] plain 2"),
        (
            _START + """attempt=0 function=session line='it\\'s "q" = [1]\\\\tx é' partition=1 stage=0.0 worker=2-4""",
            """[stage 0.0, partition 1] it's "q" = [1]\\tx é""",
        ),
        (f"{_START}function=talks line=one process=front", "[talks] one"),
        (f"{_START}function=talks line= process=front", "[talks] "),
        ('{"event": "worker output", "function": "talks", "line": "a b"}', "[talks] a b"),
        (
            f"{_DROPPED} bytes=9 function=talks lines=7 process=front worker=1-05",
            "[talks] 7 lines were dropped: raise output_lines_per_second",
        ),
        ('{"event": "exchange ended", "function": "talks"}', None),
        ("{ no JSON", None),
        ("2026-11-28T17:27:18Z [info     ] exchange ended   line='worker output x'", None),
    ],
)
def test_only_what_functions_print_is_shown_with_its_task(log_line: str, shown: str | None) -> None:
    assert printed_line(log_line) == shown


def test_a_cell_shows_only_lines_of_its_own_time_and_not_too_many(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{_START}function=f line=before\n")
    shown: list[str] = []
    output = CellOutput(log, shown.append)
    output.begin(2)
    with log.open("a") as file:
        file.write("".join(f"{_START}function=f line=l{number}\n" for number in range(5)))
    output.end()
    assert shown == ["[f] l0\n", "[f] l1\n", "[3 more lines: pool.log(None) has all]\n"]
    output.begin(2)
    output.end()
    assert len(shown) == 3


def test_of_a_crash_a_cell_shows_the_users_own_frames(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    printed = [
        "Fatal Python error: Aborted",
        "Current thread 0x00007f1d9c42db80 (most recent call first):",
        '  File "/home/ada/pyspark/crashes.py", line 5 in boom',
        '  File "/env/site-packages/numpy/core.py", line 7 in apply',
        '  File "/env/site-packages/pyspark/worker.py", line 2884 in <listcomp>',
        '  File "/env/site-packages/updraft/functions/scalar.py", line 63 in _returned',
        '  File "/env/site-packages/updraft_server/worker/process.py", line 174 in _run',
        '  File "<frozen runpy>", line 88 in _run_code',
        "Extension modules: numpy._core._multiarray_umath, pyarrow.lib (total: 2)",
        # This line belongs to a traceback that the function prints itself.
        '  File "/env/site-packages/pyspark/worker.py", line 2884, in process',
    ]
    shown: list[str] = []
    output = CellOutput(log, shown.append)
    output.begin(100)
    log.write_text("".join(f"{_START}function=f line={line!r}\n" for line in printed))
    output.end()
    kept = [*printed[:4], printed[-1]]
    assert shown == [*(f"[f] {line}\n" for line in kept), "[5 more lines: pool.log(None) has all]\n"]
