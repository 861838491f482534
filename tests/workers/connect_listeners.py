# SPDX-License-Identifier: Apache-2.0
"""Streaming query listener that a worker of the Connect server runs.

Clients before Spark 4.0 send their listeners to the server. Clients since 4.0 run listeners in their own process, but
their servers still accept the command.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.connect import proto
from pyspark.sql.connect.session import SparkSession as Client
from pyspark.sql.connect.utils import get_python_ver
from pyspark.sql.streaming.listener import StreamingQueryListener

from tests.support.waiting import until
from tests.workers.streams import VISITS, stream_of

_FAILING_BATCH = 1
_ZONE = "America/Los_Angeles"
LISTENED = {
    "added": True,
    "left": [],
    "events": [
        ["progress", "watched", "1 rows in batch 2", _ZONE],
        ["progress", "watched", "3 rows in batch 0", _ZONE],
        ["started", "watched", "", _ZONE],
        ["terminated", "", "None", _ZONE],
    ],
}
"""Outcome of `listener`. The listener fails at the progress event of the middle batch."""
_EVENTS = "event string, query string, detail string, zone string"


class _Writer(StreamingQueryListener):  # type: ignore[misc]  # PySpark is untyped to us
    """Listener that appends its events to a table of files, through its session."""

    def __init__(self, place: str) -> None:
        self._place = place

    def _write(self, event: str, query: str, detail: str) -> None:
        # This setting distinguishes the client's session from all other sessions.
        zone = self.spark.conf.get("spark.sql.session.timeZone")
        rows = self.spark.createDataFrame([(event, query, detail, zone)], _EVENTS)
        rows.write.mode("append").json(self._place)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - PySpark names it
        self._write("started", event.name, "")

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - PySpark names it
        progress = event.progress
        if progress.batchId == _FAILING_BATCH:
            raise ValueError("an error of a listener ends neither its worker nor the query")
        self._write("progress", progress.name, f"{progress.numInputRows} rows in batch {progress.batchId}")

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - PySpark names it
        self._write("terminated", "", str(event.exception))


def listener(client: Client, directory: Path) -> dict[str, Any]:
    """Run a stream with a listener in the server, and another stream after the listener was removed."""
    place, name = str(directory), str(uuid.uuid4())
    client.conf.set("spark.sql.session.timeZone", _ZONE)
    _send(client, _to_add(name, _Writer(place)))
    added = _listeners(client)
    _run_stream(client, "watched")
    # The listener writes its first event before the query starts, so the directory exists.
    until("the listener has the last event", lambda: any(row[0] == "terminated" for row in _events(client, directory)))
    _send(client, _to_remove(name))
    _run_stream(client, "unwatched")
    return {"added": added == [name], "left": _listeners(client), "events": _events(client, directory)}


def _run_stream(client: Client, name: str) -> None:
    visits = stream_of(client, "name string, n long", VISITS)
    visits.writeStream.format("noop").queryName(name).trigger(availableNow=True).start().awaitTermination()


def _events(client: Client, directory: Path) -> list[Any]:
    return sorted(list(row) for row in client.read.schema(_EVENTS).json(str(directory)).collect())


def _to_add(name: str, added: StreamingQueryListener) -> proto.StreamingQueryManagerCommand:
    command = proto.StreamingQueryManagerCommand()
    command.add_listener.id = name
    command.add_listener.python_listener_payload.command = CloudPickleSerializer().dumps(added)
    command.add_listener.python_listener_payload.python_ver = get_python_ver()
    return command


def _to_remove(name: str) -> proto.StreamingQueryManagerCommand:
    command = proto.StreamingQueryManagerCommand()
    command.remove_listener.id = name
    return command


def _listeners(client: Client) -> Sequence[str]:
    return list(_send(client, proto.StreamingQueryManagerCommand(list_listeners=True)).list_listeners.listener_ids)


def _send(client: Client, command: proto.StreamingQueryManagerCommand) -> Any:
    return client.streams._execute_streaming_query_manager_cmd(command)
