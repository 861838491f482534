# SPDX-License-Identifier: Apache-2.0
"""`make bench-functions-page`: docs/benchmarks-functions.md from the measurements of `make bench-functions`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from tests.programs.bench.record import Record
from tests.support.paths import BUILD, REPOSITORY

ONE_BY_ONE = BUILD / "bench/functions.json"
AT_ONCE = ONE_BY_ONE.with_name("functions-at-once.json")
TARGET = 10.0
"""Least rows per second of a pool in each case, as a multiple of a compared server's."""

CASES = {"rows": "a Python function of one value", "batch": "a function of a batch"}


class SideOfBench(NamedTuple):
    """Server in the benchmark."""

    title: str
    program: str = ""
    """Name of the file in function_servers; empty for a pool."""
    cases: tuple[str, ...] = tuple(CASES)
    is_peer: bool = False


SIDES = {
    "updraft": SideOfBench("Updraft"),
    "arrow-udf": SideOfBench("arrow-udf", "arrow_udf_server.py", is_peer=True),
    "databend-udf": SideOfBench("databend-udf", "databend_server.py", is_peer=True),
    "bare": SideOfBench("bare pyarrow.flight", "bare.py", ("batch",)),
}

_PAGE = """\
<!-- SPDX-License-Identifier: Apache-2.0 -->
<!-- Written by `make bench-functions-page` from what `make bench-functions` measured. Do not edit. -->
# Registered functions, measured

`make bench-functions` calls x + 1 on a pool with one worker, on the servers of arrow-udf and databend-udf (from PyPI,
in the versions that the Makefile names), and on a bare server of pyarrow.flight that adds in the process that serves.
The client is the same: pyarrow.flight, one exchange with 64 batches of 10,000 int64, written while replies are read.
All servers run on one machine with {cores} cores and are called in turn.

Rows per second are medians of {runs} runs. CPU is that of the server's processes. A pool checks each batch, queues
exchanges, and runs the function in a separate worker process; each of the other servers is a single process. A pool
gives a function of a batch an Arrow array, and the peers give it lists.

One exchange has one worker, and a worker runs one thread of Python: the call of a Python function alone takes a large
part of a value's time, and even the bare server, which does hardly anything, is barely past the target. The targets are
for a pool at work: as many exchanges as workers, and a core for each.
{slow}
{header}{rows}"""

_AT_ONCE = """
## {exchanges} exchanges at once

`make bench-functions BENCH="--exchanges {exchanges}"`: {exchanges} exchanges at once, each from its own client, on one
machine with {cores} cores. The clients are threads of one process there. The pool has {exchanges} workers. Medians of
{runs} runs.
{slow}
{header}{rows}"""

_HEADER = """\
| function | server | rows/s | CPU s for a million rows | Updraft against it | target |
| --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Measured:
    """Measurements of one run of `make bench-functions`."""

    cores: int
    """Number of cores of the machine."""
    exchanges: int
    """Number of concurrent exchanges."""
    records: Sequence[Record]

    @classmethod
    def read(cls, path: Path) -> Measured | None:
        """Read a file; return None if it does not exist."""
        if not path.exists():
            return None
        measured = json.loads(path.read_text())
        return cls(measured["cores"], measured["exchanges"], [Record(**record) for record in measured["records"]])

    def write(self, path: Path) -> None:
        """Replace the file."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def main() -> int:
    """Write the page; return 1 if there are no measurements."""
    measured = Measured.read(ONE_BY_ONE)
    if measured is None:
        print("nothing is measured: run `make bench-functions` first")
        return 1
    (REPOSITORY / "docs/benchmarks-functions.md").write_text(page(measured, Measured.read(AT_ONCE)))
    return 0


def page(measured: Measured, at_once: Measured | None = None) -> str:
    """Return the page, with a line for each case and server."""
    text = _PAGE.format(**_fields(measured))
    return text if at_once is None else text + _AT_ONCE.format(**_fields(at_once))


def _fields(measured: Measured) -> dict[str, object]:
    records = measured.records
    most = max(record.rows for record in records)
    slow = "".join(
        f"\n{SIDES[record.variant].title} had {record.rows:,} rows a run for {CASES[record.case]},"
        " so that one takes seconds.\n"
        for record in records
        if record.rows < most
    )
    runs = min(len(record.wall_s) for record in records)
    return {
        "cores": measured.cores,
        "exchanges": measured.exchanges,
        "runs": runs,
        "slow": slow,
        "header": _HEADER,
        "rows": "".join(lines_of(measured)),
    }


def lines_of(measured: Measured) -> Iterator[str]:
    """Yield the lines of the table."""
    records, exchanges = measured.records, measured.exchanges
    for record in records:
        side = SIDES[record.variant]
        title = side.title
        if record.variant == "updraft":
            title += ", one worker" if exchanges == 1 else f", {exchanges} workers"
        cpu = record.median_cpu_s / record.rows * 1e6
        speed = _rate(_ours(records, record.case)) / _rate(record)
        against = "" if record.variant == "updraft" else f"{speed:.2f}x"
        target = f"{TARGET:g}x{'' if speed >= TARGET else ' (missed)'}" if side.is_peer else ""
        rate = f"{_rate(record) / 1e6:.3g}M"
        yield f"| {CASES[record.case]} | {title} | {rate} | {cpu:.2f} | {against} | {target} |\n"


def missed(records: Sequence[Record]) -> Iterator[str]:
    """Yield a line for each target that was missed."""
    for record in records:
        if SIDES[record.variant].is_peer:
            speed = _rate(_ours(records, record.case)) / _rate(record)
            if speed < TARGET:
                yield f"{CASES[record.case]}: {speed:.2f} times the rows/s of {record.variant}, target {TARGET:g}"


def _ours(records: Sequence[Record], case: str) -> Record:
    return next(record for record in records if (record.case, record.variant) == (case, "updraft"))


def _rate(record: Record) -> float:
    return record.rows / record.median_wall_s


if __name__ == "__main__":
    sys.exit(main())
