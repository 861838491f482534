# SPDX-License-Identifier: Apache-2.0
"""`make bench-functions`: x + 1 on a pool and on the servers of arrow-udf and databend-udf, called by one client.

The client is pyarrow.flight: it sends 64 batches of 10,000 int64 in one exchange, and reads replies meanwhile. A bare
server of pyarrow.flight, which computes in its own process, shows the upper limit. All servers run at once and the
client calls them in turn, so noise of the machine affects all servers. build/bench/functions.json contains every run,
and `make bench-functions-page` writes docs/benchmarks-functions.md from this file. The exit status is 1 if a target is
missed.

`--exchanges 16` opens that many exchanges at once, as executors do, on a pool with as many workers, and writes
build/bench/functions-at-once.json.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from tests.programs.bench.functions_page import AT_ONCE, CASES, ONE_BY_ONE, SIDES, Measured, lines_of, missed
from tests.programs.bench.record import Record
from tests.support.cpu import cpu_seconds
from tests.support.paths import REPOSITORY
from tests.support.pool import LocalPool
from tests.support.service import WITH_ITS_OWNER

_BATCH_ROWS = 10_000
_SCHEMA = pa.schema([pa.field("x", pa.int64())])
_SERVERS = REPOSITORY / "tests/programs/bench/function_servers"
# If a side needs more time than this for all batches, the benchmark sends it fewer batches.
_PATIENCE_SECONDS = 5.0
# When a side has spent this time on a case, the benchmark stops running the case on this side.
_ROUNDS_SECONDS = 60.0


@dataclass
class Side:
    """Running server."""

    name: str
    pid: int
    clients: Sequence[flight.FlightClient]
    """One client for each exchange."""
    batches: dict[str, int] = field(default_factory=dict)
    """Number of batches in a run, by case."""


def main() -> int:
    """Measure, write the measurements, print the table; return 1 if a target is missed."""
    options, load = _options(), os.getloadavg()[0]
    ONE_BY_ONE.parent.mkdir(parents=True, exist_ok=True)
    measured = Measured(os.cpu_count() or 1, options.exchanges, measure(options))
    measured.write(ONE_BY_ONE if options.exchanges == 1 else AT_ONCE)
    machine = f"{measured.cores} cores, load average {load:.1f} at the start"
    print(f"{options.rounds} rounds, {options.exchanges} exchanges at once, {machine}")
    print("".join(lines_of(measured)))
    targets = list(missed(measured.records))
    for target in targets:
        print(f"MISSED: {target}")
    return 1 if targets else 0


def measure(options: argparse.Namespace) -> list[Record]:
    """Measure all cases and sides in turn; return a record for each pair."""
    records: dict[tuple[str, str], Record] = {}
    with _sides(options.peers_python, options.exchanges) as sides:
        for case in CASES:
            for side in sides:
                side.batches[case] = _fitting_batches(side, case, options.batches)
        for _ in range(options.rounds):
            for case in CASES:
                for side in sides:
                    count = side.batches[case]
                    spent_seconds = sum(records[case, side.name].wall_s) if (case, side.name) in records else 0.0
                    if not count or spent_seconds > _ROUNDS_SECONDS:
                        continue
                    rows = len(side.clients) * count * _BATCH_ROWS
                    record = records.setdefault((case, side.name), Record(case, side.name, rows))
                    before = cpu_seconds([side.pid])
                    record.wall_s.append(_seconds(side.clients, case, count))
                    record.cpu_s.append(cpu_seconds([side.pid]) - before)
    return list(records.values())


def _fitting_batches(side: Side, case: str, batches: int) -> int:
    """Warm up and return the number of batches for a run; 0 if the side does not support the case."""
    if case not in SIDES[side.name].cases:
        return 0
    one = _seconds(side.clients, case, 1)
    if one * batches > 4 * _PATIENCE_SECONDS:
        return max(1, int(_PATIENCE_SECONDS / one))
    _seconds(side.clients, case, batches)
    return batches


def _seconds(clients: Sequence[flight.FlightClient], case: str, count: int) -> float:
    """Return the total time of concurrent exchanges of `count` batches; raise SystemExit if an answer is wrong."""
    batches = [
        pa.record_batch([pa.array(range(start, start + _BATCH_ROWS), pa.int64())], schema=_SCHEMA)
        for start in range(0, count * _BATCH_ROWS, _BATCH_ROWS)
    ]
    with ThreadPoolExecutor(len(clients)) as exchanges:
        started = time.perf_counter()
        answers = list(exchanges.map(lambda client: _answers(client, case, batches), clients))
        took_seconds = time.perf_counter() - started
    right = pa.array(range(1, count * _BATCH_ROWS + 1))
    if not all(answer.column(0).combine_chunks().equals(right) for answer in answers):
        raise SystemExit(f"{case} gave a wrong answer")
    return took_seconds


def _answers(client: flight.FlightClient, case: str, batches: Sequence[pa.RecordBatch]) -> pa.Table:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path(case))
    writer.begin(_SCHEMA)

    def send() -> None:
        for batch in batches:
            writer.write_batch(batch)
        writer.done_writing()

    sending = threading.Thread(target=send)
    sending.start()
    answer = reader.read_all()
    sending.join()
    writer.close()
    return answer


@contextmanager
def _sides(peers_python: Path, exchanges: int) -> Iterator[Sequence[Side]]:
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    with ExitStack() as stack:
        module = "tests.programs.bench.function_servers.ours"
        arguments = ["--functions", module]
        pool = stack.enter_context(LocalPool(workers=exchanges, session_functions="off", arguments=arguments))
        addresses = [("updraft", pool.pid, f"grpc://{pool.tcp_address}")]
        for name, side in SIDES.items():
            if side.program:
                process = stack.enter_context(_server(peers_python, _SERVERS / side.program))
                addresses.append((name, process.pid, f"grpc://127.0.0.1:{_port(process, name)}"))
        yield [
            Side(name, pid, [stack.enter_context(_connected(address)) for _ in range(exchanges)])
            for name, pid, address in addresses
        ]


def _connected(address: str) -> flight.FlightClient:
    # Use a separate connection for each client; by default, gRPC shares a connection among all clients of an address.
    return flight.connect(address, generic_options=[("grpc.use_local_subchannel_pool", 1)])


@contextmanager
def _server(python: Path, program: Path) -> Iterator[subprocess.Popen[str]]:
    command = [*WITH_ITS_OWNER, str(python), str(program)]
    log = ONE_BY_ONE.with_name(f"{program.stem}.log").open("w")
    with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _port(process: Any, name: str) -> int:
    for line in process.stdout:
        # Skip other lines that the servers may print first.
        if line.strip().isdigit():
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return int(line)
    raise SystemExit(f"the server of {name} did not start")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-functions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="runs of each case on each side (9)")
    parser.add_argument("--batches", type=int, default=64, help="batches of 10,000 rows in a run (64)")
    parser.add_argument("--exchanges", type=int, default=1, help="exchanges at once, and workers (1)")
    parser.add_argument("--peers-python", type=Path, required=True, help="Python that has arrow-udf and databend-udf")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
