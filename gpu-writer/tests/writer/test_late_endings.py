# SPDX-License-Identifier: Apache-2.0
"""Calls that end while the storage publishes their file: reply, metrics and storage agree."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from running_writer import (
    BATCH,
    BATCH_BYTES,
    SCHEMA,
    WITHIN_SECONDS,
    Gate,
    RawExchange,
    RunningWriter,
    command,
    gated_storage,
    read,
    running_writer,
    wait_for,
)

from updraft.errors import DeadlineError

# If a file does not reach its publication before one deadline, the test retries with the next.
DEADLINES_SECONDS = (1.0, 5.0, 20.0)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunningWriter]:
    with running_writer(tmp_path, drain_timeout_seconds=0.2) as writer:
        yield writer


def outcomes(writer: RunningWriter) -> dict[str, float]:
    """Return the number of ended files by outcome."""
    samples = [sample for metric in writer.writer.metrics.files.collect() for sample in metric.samples]
    return {sample.labels["outcome"]: sample.value for sample in samples if sample.name.endswith("_total")}


@contextmanager
def finishing(writer: RunningWriter, path: Path, *, timeout_seconds: float = WITHIN_SECONDS) -> Iterator[RawExchange]:
    """Open an exchange whose client has sent everything."""
    to_do = command(path)
    with RawExchange(writer.address, SCHEMA, to_do, timeout_seconds=timeout_seconds) as exchange:
        exchange.ask(BATCH_BYTES)
        exchange.next_reply()
        exchange.batch(1, BATCH)
        exchange.finish(1, BATCH.num_rows)
        exchange.half_close()
        yield exchange


def test_a_file_whose_client_cancels_while_it_is_published_counts_as_written(writer: RunningWriter) -> None:
    path = writer.root / "f"
    with gated_storage(writer, at="publish") as gate, finishing(writer, path) as exchange:
        assert gate.reached.wait(WITHIN_SECONDS)
        exchange.call.cancel()
        exchange.last_reply()
        gate.opened.set()
        wait_for(lambda: bool(outcomes(writer)), "the end of the exchange")
    assert outcomes(writer) == {"ok": 1}
    assert read(path) == BATCH["n"].to_pylist()


def expired(writer: RunningWriter, gate: Gate, path: Path) -> bool:
    """Return whether a deadline passed while the file was being published; if so, open the gate."""
    for timeout_seconds in DEADLINES_SECONDS:
        with finishing(writer, path, timeout_seconds=timeout_seconds) as exchange:
            reached = gate.reached.wait(timeout_seconds)
            exchange.last_reply()
            assert exchange.call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            if reached:
                gate.opened.set()
                return True
    return False


def test_a_file_whose_deadline_passes_while_it_is_published_counts_as_written(writer: RunningWriter) -> None:
    path = writer.root / "f"
    with gated_storage(writer, at="publish") as gate:
        assert expired(writer, gate, path)
        wait_for(lambda: "ok" in outcomes(writer), "the count of the written file")
    assert outcomes(writer)["ok"] == 1
    assert read(path) == BATCH["n"].to_pylist()


def test_a_drain_that_ends_files_leaves_one_alone_that_is_being_published(writer: RunningWriter) -> None:
    path = writer.root / "f"
    with gated_storage(writer, at="publish") as gate, finishing(writer, path) as exchange:
        assert gate.reached.wait(WITHIN_SECONDS)
        ended = writer.writer.files.fail_all
        fail_all_was_called = Gate()

        def fail_all(error: Exception) -> None:
            ended(error)  # type: ignore[arg-type]
            fail_all_was_called.reached.set()

        writer.writer.files.fail_all = fail_all  # type: ignore[method-assign]
        writer.drain()
        assert fail_all_was_called.reached.wait(WITHIN_SECONDS)
        gate.opened.set()
        assert exchange.last_reply().receipt.rows == BATCH.num_rows
    assert read(path) == BATCH["n"].to_pylist()
    assert outcomes(writer) == {"ok": 1}


def test_a_client_whose_own_deadline_passes_after_its_finish_does_not_say_that_there_is_no_file(
    writer: RunningWriter,
) -> None:
    with gated_storage(writer, at="publish") as gate:
        for timeout_seconds in DEADLINES_SECONDS:
            with writer.client(timeout_seconds=timeout_seconds) as client:
                file = client.create(str(writer.root / "f"), SCHEMA)
                file.write(BATCH)
                with pytest.raises(DeadlineError) as failed:
                    file.finish()
            if gate.reached.is_set():
                break
        gate.opened.set()
    assert gate.reached.is_set()
    assert "whether it published the file is not known" in failed.value.message
