# SPDX-License-Identifier: Apache-2.0
"""Worker exchanges whose stream, or whose module, is not PySpark's: an error, and a worker that serves again."""

import struct

import pyarrow as pa
import pyspark
import pytest
from pool_driver import Reply, Zygotes, exchange, running_pool
from session_commands import said, session_command

from updraft.v1 import exchange_pb2
from updraft_server.worker.pyspark.adapters import minor_version
from updraft_server.worker.pyspark.connections import RUNNER, SCHEMA
from updraft_server.worker.pyspark.wire import text

pytestmark = pytest.mark.skipif(
    minor_version(pyspark.__version__) < (4, 0), reason="no tunnel serves workers of a Spark before 4.0"
)
_TASKS = "pyspark.worker"
_PLANNER = "pyspark.sql.worker.analyze_udtf"


async def run(zygotes: Zygotes, module: str, opening: bytes, rest: bytes) -> Reply:
    """Run an exchange, and after it another one of the same owner."""
    command = session_command(0, [], worker_module=exchange_pb2.WorkerModule(name=module, opening=opening))
    rows = [{"connection": RUNNER, "data": rest, "read": 0}]
    async with running_pool(zygotes) as pool:
        reply = await exchange(pool, [pa.RecordBatch.from_pylist(rows, schema=SCHEMA)], command)
        assert await said(pool, lambda: "served") == "served"
    return reply


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="of another protocol"),
        pytest.param(bytes(4096), id="of zeros"),
        pytest.param(struct.pack("!i", -8) + text("3.11"), id="that ends early"),
        pytest.param(struct.pack("!i", 1 << 30), id="with a length that it does not have"),
        pytest.param(text(""), id="without a version"),
    ],
)
@pytest.mark.parametrize("module", [_TASKS, _PLANNER])
async def test_a_stream_that_is_not_pysparks_is_reported_to_spark(zygotes: Zygotes, module: str, stream: bytes) -> None:
    for opening, rest in ((stream, b"more"), (b"", stream)):
        reply = await run(zygotes, module, opening, rest)
        if reply.error is None:
            # The module has told Spark, and returned.
            written = b"".join(batch.column("data")[0].as_py() or b"" for _, batch in reply.batches)
            assert written
        else:
            assert reply.error.kind == exchange_pb2.ERROR_KIND_USER, reply.error


@pytest.mark.parametrize(
    "module", ["pyspark.nowhere", "timeit", "pyspark.sql.types", "pyspark", "", "pyspark.worker.main"]
)
async def test_another_module_is_refused_by_its_name(zygotes: Zygotes, module: str) -> None:
    reply = await run(zygotes, module, b"", b"anything")
    assert reply.error is not None
    assert reply.error.kind == exchange_pb2.ERROR_KIND_FUNCTION_REFUSED
    assert f"with pyspark {pyspark.__version__}, has no worker module {module!r}" in reply.error.message
