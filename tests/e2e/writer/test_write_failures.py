# SPDX-License-Identifier: Apache-2.0
"""Failures while a file is written name the setting to look at, and leave nothing under the path."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.e2e.writer.conftest import DELIVERY, ENDPOINT
from tests.e2e.writer.written import FAILURES, Written, both, write
from tests.support.flight import FlightData, first_message, ipc_parts
from tests.support.spark import runtime_confs
from tests.support.sql_tab import stages
from tests.support.waiting import until
from tests.support.writer import LocalWriter
from updraft.protocol import PROTOCOL_VERSION
from updraft.v1.write_pb2 import Ask, Delivery, ParquetOptions, WriteCommand, WriteRequestMetadata

_QUOTA_BYTES = 1 << 20
_ROWS = 400_000


def _failing(spark: SparkSession) -> DataFrame:
    """Return a frame that fails in its second task, after much has been sent."""
    text = F.sha1(F.col("id").cast("string"))
    broken = F.when(F.col("id") == _ROWS - 10, F.raise_error(F.lit("boom"))).otherwise(text)
    return spark.range(0, _ROWS, 1, 2).select("id", broken.alias("text"))


def test_without_an_endpoint_the_setting_is_named(spark: SparkSession, place: Path) -> None:
    spark.conf.unset(ENDPOINT)
    with pytest.raises(FAILURES, match=r"set spark\.updraft\.write\.endpoint"):
        write(spark.range(1), place / "refused", "updraft-parquet")


def test_a_writer_that_cannot_be_reached_is_named_with_its_setting(spark: SparkSession, place: Path) -> None:
    confs = {
        ENDPOINT: "grpc://127.0.0.1:1",
        "spark.updraft.write.connectTimeout": "500ms",
        "spark.updraft.write.acquireTimeout": "1s",
    }
    named = r"cannot reach a writer at grpc://127\.0\.0\.1:1 .*spark\.updraft\.write\.endpoint"
    with runtime_confs(spark, confs), pytest.raises(FAILURES, match=named):
        write(spark.range(1), place / "refused", "updraft-parquet")


def test_a_path_outside_the_roots_is_refused_unless_the_bytes_come_back(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "outside"
    with pytest.raises(FAILURES, match=r"outside the roots .*spark\.updraft\.write\.delivery = return"):
        write(spark.range(5), path, "updraft-parquet")
    assert not list(path.rglob("part-*"))
    with runtime_confs(spark, {DELIVERY: "return"}):
        spark.range(5).write.format("updraft-parquet").mode("overwrite").save(str(path))
    assert len(Written(path).rows(spark)) == 5


def test_an_unknown_codec_is_refused_by_its_name(spark: SparkSession, place: Path) -> None:
    with pytest.raises(FAILURES, match=r"(?i)codec.*nonesuch"):
        write(spark.range(1), place / "unknown", "updraft-parquet", compression="nonesuch")
    with pytest.raises(FAILURES, match=r"the codec LZ4\. Set spark\.updraft\.write\.unsupported"):
        write(spark.range(1), place / "hadoops", "updraft-parquet", compression="lz4")


@pytest.mark.parametrize("delivery", ["direct", "return"])
def test_a_failed_task_leaves_no_file(spark: SparkSession, writer: LocalWriter, place: Path, delivery: str) -> None:
    confs = {DELIVERY: delivery, "spark.updraft.write.batchBytes": "64k"}
    with runtime_confs(spark, confs), pytest.raises(FAILURES, match="boom"):
        write(_failing(spark), place / "data", "updraft-parquet")
    writer.becomes_empty()
    assert not list((place / "data").rglob("*.parquet*"))


@pytest.mark.parametrize("delivery", ["direct", "return"])
def test_a_cancelled_job_leaves_no_file(spark: SparkSession, writer: LocalWriter, place: Path, delivery: str) -> None:
    endless = spark.range(0, 1 << 40, 1, 2).select(F.sha1(F.col("id").cast("string")).alias("text"))
    failed: list[BaseException] = []

    def run() -> None:
        spark.sparkContext.setJobGroup("endless", "a write that does not end", interruptOnCancel=True)
        try:
            write(endless, place / "data", "updraft-parquet")
        except FAILURES as error:
            failed.append(error)

    with runtime_confs(spark, {DELIVERY: delivery, "spark.updraft.write.batchBytes": "256k"}):
        job = threading.Thread(target=run)
        job.start()
        try:
            until("the job writes", lambda: writer.status()["open_files"] == 2)
        finally:
            spark.sparkContext.cancelJobGroup("endless")
            job.join(timeout=60)
    assert failed, "the job has not ended"
    writer.becomes_empty()
    assert not list((place / "data").rglob("*.parquet*"))


def test_a_writer_that_dies_ends_the_write_at_once(spark: SparkSession, place: Path) -> None:
    endless = spark.range(0, 1 << 40, 1, 2).select(F.sha1(F.col("id").cast("string")).alias("text"))
    with LocalWriter(place) as mortal, runtime_confs(spark, {ENDPOINT: mortal.tcp_endpoint}):

        def strike() -> None:
            until("the job writes", lambda: mortal.status()["held_bytes"])
            os.kill(mortal.pid, signal.SIGKILL)

        striker = threading.Thread(target=strike)
        striker.start()
        with pytest.raises(FAILURES, match=r"the (stream from the )?writer at .*spark\.updraft\.write\.endpoint"):
            write(endless, place / "data", "updraft-parquet")
        striker.join()
    assert not list((place / "data").rglob("part-*"))


def test_a_writer_that_wants_a_token_is_answered_or_names_the_setting(
    spark: SparkSession, place: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with (
        LocalWriter(place, arguments=["--token-file", str(token)]) as guarded,
        runtime_confs(spark, {ENDPOINT: guarded.tcp_endpoint}),
    ):
        with pytest.raises(FAILURES, match=r"spark\.updraft\.write\.tokenFile"):
            write(spark.range(1), place / "refused", "updraft-parquet")
        with runtime_confs(spark, {"spark.updraft.write.tokenFile": str(token)}):
            written = write(spark.range(3), place / "allowed", "updraft-parquet")
    assert len(written.rows(spark)) == 3


@contextlib.contextmanager
def _everything_reserved(writer: LocalWriter, path: Path) -> Iterator[None]:
    """Hold credit for the whole quota from another client that does not use it."""
    schema = pa.schema({"n": pa.int64()})
    command = WriteCommand(
        protocol_version=PROTOCOL_VERSION, path=str(path), delivery=Delivery.DELIVERY_DIRECT, parquet=ParquetOptions()
    )
    [(header, _)] = ipc_parts(schema, [])
    done = threading.Event()

    def requests() -> Iterator[bytes]:
        yield first_message(command, header).SerializeToString()
        ask = WriteRequestMetadata(ask=Ask(body_bytes=_QUOTA_BYTES))
        yield FlightData(app_metadata=ask.SerializeToString()).SerializeToString()
        done.wait()

    with grpc.insecure_channel(writer.tcp_address) as channel:
        call = channel.stream_stream("/arrow.flight.protocol.FlightService/DoExchange")(requests())
        try:
            next(call)
            yield
        finally:
            done.set()
            call.cancel()


def test_a_full_quota_is_waited_for_and_then_named(spark: SparkSession, place: Path) -> None:
    quota = ["--quota-bytes", str(_QUOTA_BYTES)]
    soon = {"updraft_writer.quota.ADMISSION_TIMEOUT_SECONDS": 0.5}
    confs = {"spark.updraft.write.acquireTimeout": "2s"}
    writer = LocalWriter(place, arguments=quota, constants=soon)
    with writer as full, runtime_confs(spark, {ENDPOINT: full.tcp_endpoint, **confs}):
        with (
            _everything_reserved(full, place / "other.parquet"),
            pytest.raises(FAILURES, match=r"gave no credit within 2\.0 s.*--quota-bytes"),
        ):
            write(spark.range(1000), place / "refused", "updraft-parquet")
        full.becomes_empty()
        stock, ours = both(spark.range(1000), place)
    assert ours.rows(spark) == stock.rows(spark)


def test_what_the_files_cost_is_shown_with_the_stage(spark: SparkSession, place: Path) -> None:
    written = write(spark.range(0, 1000, 1, 2), place / "data", "updraft-parquet")

    def measured() -> dict[str, str] | None:
        found = (stage for stage in stages(spark) if stage.rows == 1000)
        return next((stage.accumulators for stage in found if "updraft writer: files" in stage.accumulators), None)

    found = until("the stage is there", measured)
    size = str(sum(path.stat().st_size for path in written.files()))
    assert found["updraft writer: files"] == "2"
    assert found["updraft writer: bytes of files"] == size
    assert size in {str(stage.output_bytes) for stage in stages(spark) if stage.rows == 1000}
    assert int(found["updraft writer: bytes of rows"]) >= 8000
