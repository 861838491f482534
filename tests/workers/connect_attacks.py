# SPDX-License-Identifier: Apache-2.0
"""Hostile foreachBatch functions on a pool: they cannot use another session, and harm only their own query.

Each attack is a function of the client and a directory, like the scenarios of `connect_application`. Spark sends the
functions to the pool, so each function imports the modules that it needs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql.connect.session import SparkSession as Client

from tests.support.waiting import until
from tests.workers.directories import new_directory
from tests.workers.streams import VISITS, stream_of


def _run(client: Client, directory: Path, function: Callable[[Any, int], None]) -> str:
    """Run a function over the first batches of a stream. Return the query's error; empty if the query succeeds."""
    writer = stream_of(client, "name string, n long", VISITS[:1]).writeStream.foreachBatch(function)
    checkpoint = str(directory.with_suffix(".checkpoint"))
    try:
        writer.trigger(availableNow=True).option("checkpointLocation", checkpoint).start().awaitTermination()
    except Exception as error:
        return str(error)
    return ""


def _answers() -> list[str]:
    """Send the start of HTTP/2 to every worker's socket that this process sees. Return whether each socket answers."""
    import re
    import socket

    def ask(name: str) -> str:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10)
            try:
                sock.connect(f"\0{name}")
                sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                return "answered" if sock.recv(1) else "closed"
            except OSError as error:
                return f"closed: {error}"

    table = Path("/proc/net/unix").read_text()
    return [ask(name) for name in sorted(set(re.findall("@(updraft-connect-[0-9a-f]+)$", table, re.MULTILINE)))]


def uses_the_socket_of_another_worker(client: Client, directory: Path) -> dict[str, Any]:
    """Return what sockets answer to the session's own worker, and meanwhile to a task of another session."""
    shared, errors = new_directory(), []
    own, stop = shared / "own", shared / "stop"
    done, place = own / "_SUCCESS", str(own)

    def wait(batch: Any, _number: int) -> None:
        import time

        batch.sparkSession.createDataFrame([(answer,) for answer in _answers()], "answer string").write.text(place)
        while not stop.exists():
            time.sleep(0.1)

    query = threading.Thread(target=lambda: errors.append(_run(client, directory, wait)))
    query.start()
    until("the function has the session", lambda: done.exists() or errors)
    assert done.exists(), errors
    context = SparkContext._active_spark_context
    assert context is not None
    others = context.parallelize([0], 1).map(lambda _: _answers()).first()
    stop.touch()
    query.join()
    return {
        "own": [row.value for row in client.read.text(place).collect()],
        "another": sorted({answer.split(":")[0] for answer in others}),
    }


def _speaks(client: Client, directory: Path, act: Callable[[Any], None]) -> str:
    """Let a function act on its worker's end of the exchange. Return the query's error."""

    def run(_batch: Any, _number: int) -> None:
        import gc
        import time

        (shared,) = (each for each in gc.get_objects() if type(each).__name__ == "SharedConnections")
        with shared._changed:
            act(shared)
        # The exchange ends during this time.
        time.sleep(20)

    return _run(client, directory, run)


def opens_too_many_connections(client: Client, directory: Path) -> str:
    def hoard(shared: Any) -> None:
        import os
        from urllib.parse import urlsplit

        port = urlsplit(os.environ["SPARK_CONNECT_LOCAL_URL"]).port
        for _ in range(64):
            shared.open(str(port))

    return _speaks(client, directory, hoard)


def connects_to_another_port(client: Client, directory: Path) -> str:
    return _speaks(client, directory, lambda shared: shared.open("22"))


def lies_about_what_it_has_read(client: Client, directory: Path) -> str:
    return _speaks(client, directory, lambda shared: shared._reply(0, memoryview(b"x"), 1 << 40))


def writes_to_a_connection_that_is_not_open(client: Client, directory: Path) -> str:
    return _speaks(client, directory, lambda shared: shared.send(1000, b"x"))


def replies_with_other_columns(client: Client, directory: Path) -> str:
    def reply(shared: Any) -> None:
        import pyarrow as pa

        from updraft.v1.exchange_pb2 import ReplyMetadata

        # Send without the worker's own checks, which would refuse this batch.
        message = memoryview(pa.RecordBatch.from_pydict({"connection": [0]}).serialize())
        header_end = 8 + int.from_bytes(message[4:8], "little")
        metadata = ReplyMetadata(sequence=shared._replies + 1)
        shared._batches._send(metadata, message[8:header_end], message[header_end:])

    return _speaks(client, directory, reply)


ATTACKS = (
    connects_to_another_port,
    lies_about_what_it_has_read,
    opens_too_many_connections,
    replies_with_other_columns,
    uses_the_socket_of_another_worker,
    writes_to_a_connection_that_is_not_open,
)
