# SPDX-License-Identifier: Apache-2.0
"""Worker output as the front reads it from a real pipe, and how much of it passes the limit."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator

import pytest

from updraft_server.pool.worker_output import MAX_LINE_BYTES, CrashReport, OutputReader, TokenBucket

READ_BYTES = 64 * 1024
BURST_LINES = 20
# Slow enough that a test sees only the burst.
LINES_PER_SECOND = BURST_LINES / 2


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_a_bucket_gives_what_it_holds_at_once_and_refills_with_time() -> None:
    clock = Clock()
    bucket = TokenBucket(per_second=2, capacity=5, clock=clock)
    assert bucket.take(4)
    assert not bucket.take(2)
    assert bucket.take(1)
    assert not bucket.take(1)
    clock.seconds += 0.5
    assert bucket.take(1)
    assert not bucket.take(1)
    clock.seconds += 1000
    assert bucket.take(5)
    assert not bucket.take(1)
    bucket.refill()
    assert bucket.take(5)


class Output:
    """Worker's pipe, and the lines that passed through it."""

    def __init__(self, lines_per_second: float) -> None:
        reading, self.writing = os.pipe()
        self.lines: list[str] = []
        self.drops: list[tuple[int, int]] = []
        self.reader = OutputReader(
            reading, lines_per_second, self.lines.append, lambda lines, size: self.drops.append((lines, size))
        )

    async def print(self, text: bytes) -> None:
        """Print, as fast as the reader reads."""
        await asyncio.to_thread(self._write, text)

    def _write(self, text: bytes) -> None:
        left = memoryview(text)
        while left:
            left = left[os.write(self.writing, left) :]


@pytest.fixture
async def output(request: pytest.FixtureRequest) -> AsyncIterator[Output]:
    made = Output(getattr(request, "param", LINES_PER_SECOND))
    yield made
    made.reader.close()
    os.close(made.writing)


async def test_lines_within_the_budget_are_passed_on_without_blank_ones(output: Output) -> None:
    await output.print(b"one\n\n  two \nthree")
    output.reader.close()
    assert output.lines == ["one", "  two", "three"]
    assert output.drops == []


async def test_what_an_exchange_printed_is_not_taken_for_the_next_ones_output(output: Output) -> None:
    # A function may enlarge its pipe beyond the system's default.
    fcntl.fcntl(output.writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.write(output.writing, b"x\n" * 400_000)
    output.reader.next_exchange()
    before = len(output.lines)
    assert sum(lines for lines, _ in output.drops) == 400_000 - before
    os.write(output.writing, b"the next one's\n")
    output.reader.next_exchange()
    assert output.lines[before:] == ["the next one's"]


async def test_an_unfinished_line_ends_with_its_exchange(output: Output) -> None:
    os.write(output.writing, b"the first one's")
    output.reader.next_exchange()
    assert output.lines == ["the first one's"]
    os.write(output.writing, b" and not this\n")
    output.reader.next_exchange()
    assert output.lines[1:] == [" and not this"]


async def test_a_flood_is_read_to_its_end_and_what_is_beyond_the_budget_is_counted(output: Output) -> None:
    flood = b"".join(b"%08d\n" % number for number in range(100_000))
    await output.print(flood)
    output.reader.next_exchange()
    passed = len(output.lines)
    # A burst, plus what the budget regains during the flood.
    assert BURST_LINES <= passed < BURST_LINES + 60 * LINES_PER_SECOND
    assert (sum(lines for lines, _ in output.drops), sum(size for _, size in output.drops)) == (
        100_000 - passed,
        len(flood) - 9 * passed,
    )


async def test_the_next_exchange_has_a_budget_of_its_own(output: Output) -> None:
    await output.print(b"x\n" * 1000)
    output.reader.next_exchange()
    output.lines.clear()
    await output.print(b"mine\n")
    output.reader.next_exchange()
    assert output.lines == ["mine"]


async def test_long_lines_cost_more_are_cut_and_say_so(output: Output) -> None:
    await output.print((b"x" * MAX_LINE_BYTES + b"yyy\n") * 100)
    output.reader.next_exchange()
    assert output.lines[0] == "x" * MAX_LINE_BYTES + "... [3 bytes more]"
    # Each line costs nine times as much as a short one.
    assert len(output.lines) < 50


async def test_a_line_without_end_is_passed_on_in_parts_and_counted(output: Output) -> None:
    await output.print(b"x" * 1_000_000)
    output.reader.close()
    assert output.lines
    assert sum(size for _, size in output.drops) + READ_BYTES * len(output.lines) >= 1_000_000


async def test_no_turn_of_the_loop_reads_or_passes_on_more_than_its_bound(output: Output) -> None:
    turns, in_one_turn, most = 0, 0, 0

    def line(_: str) -> None:
        nonlocal in_one_turn, most
        in_one_turn += 1
        most = max(most, in_one_turn)

    output.reader._on_line = line
    printing = asyncio.create_task(output.print(b"x\n" * (5 << 20)))
    while not printing.done():
        turns, in_one_turn = turns + 1, 0
        await asyncio.sleep(0)
    assert turns >= (10 << 20) / READ_BYTES
    # The budget regains a line every tenth of a second; a read holds 32,768 lines.
    assert BURST_LINES <= most < 60 * LINES_PER_SECOND


# The budget regains nothing; otherwise a slow machine would pass on the line after the flood.
@pytest.mark.parametrize("output", [0.0], indirect=True, ids=["regains nothing"])
async def test_a_crash_is_found_in_a_flood_that_is_dropped(output: Output) -> None:
    await output.print(b"y" * 99 + b"\n" + b"z\n" * 1_000_000)
    await output.print(b"Fatal Python error: Segmentation fault\n\nCurrent thread:\n  File a, line 1 in f\n")
    output.reader.close()
    assert output.reader.crash.text == (
        "Fatal Python error: Segmentation fault\nCurrent thread:\n  File a, line 1 in f"
    )
    assert not any("Fatal" in line for line in output.lines)


@pytest.mark.parametrize("parts", [1, 2, 7, 50])
def test_the_last_crash_is_reported_however_its_lines_come(parts: int) -> None:
    lines = [b"noise", b"Fatal Python error: first", b"x", b"no Fatal Python error: at all"]
    lines += [b"Fatal Python error: second", b"", b"a", *(b"%d" % number for number in range(1000))]
    report = CrashReport()
    size = -(-len(lines) // parts)
    for start in range(0, len(lines), size):
        report.take(b"".join(line + b"\n" for line in lines[start : start + size]))
    kept = report.text.splitlines()
    assert kept[:4] == ["Fatal Python error: second", "a", "0", "1"]
    assert 190 < len(kept) <= 200
