# SPDX-License-Identifier: Apache-2.0
"""Worker modules of Spark Connect in real workers: their requirements, and what they leave behind."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pool_driver import Reply, Zygotes, exchange, running_pool
from session_commands import session_command

from updraft.v1 import exchange_pb2
from updraft_server.ipc.frames import FrameKind
from updraft_server.ipc.worker_settings import WorkerSettings
from updraft_server.worker.pyspark.adapters import minor_version
from updraft_server.worker.pyspark.connections import RUNNER, SCHEMA
from updraft_server.worker.pyspark.wire import text

pytestmark = pytest.mark.skipif(
    minor_version(pyspark.__version__) < (4, 0), reason="no tunnel serves workers of a Spark before 4.0"
)
MODULE = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"
URL = "SPARK_CONNECT_LOCAL_URL"
# The module reports to Spark that it does not have this Python, and returns.
STREAM = text("2.7")


async def run(zygotes: Zygotes, url: str) -> Reply:
    command = session_command(
        0, [], worker_module=exchange_pb2.WorkerModule(name=MODULE), environment={URL: url} if url else {}
    )
    rows = [{"connection": RUNNER, "data": STREAM, "read": 0}]
    async with running_pool(zygotes) as pool:
        return await exchange(pool, [pa.RecordBatch.from_pylist(rows, schema=SCHEMA)], command)


async def test_its_worker_serves_no_further_exchange(zygotes: Zygotes) -> None:
    reply = await run(zygotes, "sc://localhost:15002/;user_id=a")
    assert (reply.error, reply.ending) == (None, FrameKind.RETIRED)


@pytest.mark.parametrize("url", ["", "sc://localhost/;user_id=a", "sc://localhost:http"])
async def test_a_url_without_a_port_is_a_protocol_error(zygotes: Zygotes, url: str) -> None:
    reply = await run(zygotes, url)
    assert reply.error is not None
    assert reply.error.kind == exchange_pb2.ERROR_KIND_PROTOCOL
    assert f"{URL} has no port" in reply.error.message


@pytest.fixture
def restricted_zygotes(tmp_path: Path) -> Iterator[Zygotes]:
    started = Zygotes(tmp_path, WorkerSettings(allow_session_functions=True), restricted=True)
    yield started
    started.stop()


async def test_a_restricted_pool_refuses_it_and_says_why(restricted_zygotes: Zygotes) -> None:
    reply = await run(restricted_zygotes, "sc://localhost:15002/;user_id=a")
    assert reply.error is not None
    assert reply.error.kind == exchange_pb2.ERROR_KIND_FUNCTION_REFUSED
    assert "--profile restricted" in reply.error.message
