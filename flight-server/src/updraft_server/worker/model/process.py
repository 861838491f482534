# SPDX-License-Identifier: Apache-2.0
"""Main loop of a forked model process: loads a function, joins the rows of workers, and sends the results.

The loop has one thread. The process uses a share of the machine: some of the CPUs and, if the function asks for a GPU,
one GPU. While the function runs, further rows wait in the sockets and in the queue, and form the next batch.
"""

import contextlib
import math
import os
import select
import socket
import time
import traceback
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from updraft.arrow_decoder import ArrowDecoder
from updraft.errors import UpdraftError
from updraft.functions import Batching
from updraft.functions.failures import describe
from updraft_server.worker.model import control as packets
from updraft_server.worker.model.connection import Connection, ConnectionEndedError, Room
from updraft_server.worker.model.function import BatchedFunction, LoadedModel
from updraft_server.worker.model.messages import MessageError, MessageKind
from updraft_server.worker.model.model_batch import ModelBatch, ModelRequest
from updraft_server.worker.model.row_queue import RowQueue
from updraft_server.worker.model.watchdog import TURN_SECONDS, Watchdog
from updraft_server.worker.process_state import in_this_process

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
# Libraries use one thread in a worker (`updraft_server.supervisor.zygote_child`). In a model process they may use more
# threads, because a model process serves all workers.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_FIRST_DEVICE = Path("/dev/nvidia0")
# Devices are probed by name, because the sandbox does not let a process list /dev.
_MAX_DEVICES = 64


def take_share(batching: Batching, number: int) -> None:
    """Set the environment of this process, replica `number`, for the libraries that the process loads afterwards."""
    if batching.device == "cuda":
        os.environ[VISIBLE_DEVICES] = _device(number)
    threads = batching.threads or max(1, len(os.sched_getaffinity(0)) // batching.replicas)
    os.environ.update(dict.fromkeys(THREADS, str(threads)))


def _device(number: int) -> str:
    """Return one of the GPUs that the pool's environment names, or one of the installed GPUs if it names none."""
    visible = [name.strip() for name in os.environ.get(VISIBLE_DEVICES, "").split(",") if name.strip()]
    if visible:
        return visible[number % len(visible)]
    return str(number % max(1, _installed()))


def _installed() -> int:
    """Return how many GPUs this container or machine has; CUDA numbers them from 0."""
    return sum(_FIRST_DEVICE.with_name(f"nvidia{minor}").exists() for minor in range(_MAX_DEVICES))


_HELD_BYTES = 256 * 1024 * 1024
# Resolution of poll. A batch that is due within this time runs at once, because poll could return too late for it.
_POLL_SECONDS = 0.001
# A process that waits for rows wakes up this often, to show the watchdog that it is alive.
_MOST_WAIT_SECONDS = TURN_SECONDS / 3
# POLLNVAL means that the function has closed the socket. If the loop ignored it, poll would keep returning at once.
_ENDED = select.POLLHUP | select.POLLERR | select.POLLNVAL
# Delay before the process reports a change to the zygote, so that changes in quick succession share one packet.
_STATE_SECONDS = 0.25
EXIT_NOT_LOADED = 76


class ModelProcess:
    """One replica of a batched function."""

    def __init__(
        self, control: socket.socket, function: BatchedFunction, max_batch_rows: int, watchdog: Watchdog
    ) -> None:
        self._control = control
        self._watchdog = watchdog
        self._function = function
        self._decoder = ArrowDecoder(function.argument_schema, max_batch_rows=max_batch_rows)
        batching = function.batching
        self._queue = RowQueue[Connection, ModelRequest](batching.rows, batching.wait_seconds, time.monotonic)
        self._room = Room(_HELD_BYTES)
        self._connections: dict[int, Connection] = {}
        self._attached = 0
        """Connections received so far, including ended ones."""
        self._poll = select.poll()
        self._model: LoadedModel
        self._is_retiring = False
        self._alone_until_seconds = -math.inf
        """Time until which every request that must not be repeated runs in a separate batch."""
        self._last_used_seconds = time.monotonic()
        self._tell_seconds: float | None = None
        """When to tell the zygote about changes; None if nothing has changed."""

    def run(self) -> NoReturn:
        """Load the function, and serve workers until the zygote asks this process to end, or until the zygote exits."""
        self._load()
        # Start the watchdog before Ready is sent: after Ready, the zygote no longer applies the load's time limit.
        self._watchdog.turned()
        self._tell(packets.Ready())
        self._poll.register(self._control, select.POLLIN)
        while not self._is_retiring:
            self._turn()
        self._say_goodbye()
        os._exit(0)

    def _load(self) -> None:
        try:
            with in_this_process():
                self._model = self._function.load()
                self._model.warm_up()
        except BaseException as error:
            traceback.print_exc()
            self._tell(packets.LoadFailed(describe(error)))
            os._exit(EXIT_NOT_LOADED)

    def _turn(self) -> None:
        self._watchdog.turned()
        for connection in self._connections.values():
            self._poll.modify(connection.descriptor, connection.events)
        ready = self._poll.poll(self._wait_milliseconds())
        self._watchdog.turned()
        for descriptor, events in ready:
            if descriptor == self._control.fileno():
                self._obey()
            elif descriptor in self._connections:
                self._serve(self._connections[descriptor], events)
        if (due_in_seconds := self._queue.due_in_seconds()) is not None and due_in_seconds < _POLL_SECONDS:
            self._run_batch()
        self._tell_changes()

    def _wait_milliseconds(self) -> int:
        due = [_MOST_WAIT_SECONDS]
        if (due_in_seconds := self._queue.due_in_seconds()) is not None:
            due.append(due_in_seconds)
        if self._tell_seconds is not None:
            due.append(max(0.0, self._tell_seconds - time.monotonic()))
        return math.floor(min(due) * 1000)

    def _obey(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._control, packets.MAX_PACKET_BYTES, 1)
        if not data:
            # Without a zygote, nothing can replace this process or direct workers to it.
            os._exit(0)
        match packets.decode(data):
            case packets.Attach():
                self._attach(socket.socket(fileno=descriptors[0]))
            case packets.Retire():
                self._is_retiring = True
            case packets.RunAlone(until_seconds):
                self._alone_until_seconds = until_seconds

    def _attach(self, sock: socket.socket) -> None:
        sock.set_inheritable(False)
        connection = Connection(sock, self._room)
        self._connections[connection.descriptor] = connection
        self._attached += 1
        self._queue.open(connection)
        self._poll.register(connection.descriptor, connection.events)
        self._changed()

    def _serve(self, connection: Connection, events: int) -> None:
        try:
            if events & select.POLLOUT:
                connection.flush()
            if connection.is_answering and events & _ENDED:
                raise ConnectionEndedError("the worker has gone away")
            if not connection.is_answering and events & (select.POLLIN | _ENDED):
                self._receive(connection)
        except (ConnectionEndedError, MessageError):
            self._close(connection)

    def _receive(self, connection: Connection) -> None:
        received = connection.receive()
        if received is None:
            return
        message = received.message
        try:
            request = ModelRequest.decoded(connection, received, self._decoder)
        except UpdraftError as error:
            connection.send(MessageKind.FAILED, message.sequence, error.to_message().SerializeToString())
            return
        is_alone = message.kind is MessageKind.SUSPECT_ROWS or (
            not self._function.is_deterministic and time.monotonic() < self._alone_until_seconds
        )
        self._queue.add(connection, request, request.batch.num_rows, message.sent_seconds, is_alone=is_alone)

    def _close(self, connection: Connection) -> None:
        del self._connections[connection.descriptor]
        self._poll.unregister(connection.descriptor)
        self._queue.close(connection)
        connection.close()
        self._changed()

    def _run_batch(self) -> None:
        batch = ModelBatch(self._queue.take(), self._model, self._function.batching.timeout_seconds, self._watchdog)
        for request, kind in batch.announced(is_deterministic=self._function.is_deterministic):
            if not request.connection.is_closed:
                self._send(request, kind)
        if batch.is_of_a_suspect:
            self._tell(packets.Suspect(is_running=True))
        for request in batch.run():
            if request.connection.is_closed:
                continue
            if request.error is not None:
                self._queue.drop(request.connection, request)
                self._send(request, MessageKind.FAILED, request.error.to_message().SerializeToString())
            elif request.is_complete:
                self._send(request, MessageKind.RESULT, request.result())
        for request in batch.interrupted():
            if not request.connection.is_closed:
                self._send(request, MessageKind.JOINED)
        if batch.is_of_a_suspect:
            self._tell(packets.Suspect(is_running=False))
        self._queue.done()
        self._last_used_seconds = time.monotonic()
        self._changed()

    def _send(self, request: ModelRequest, kind: MessageKind, payload: bytes | pa.Buffer = b"") -> None:
        try:
            request.connection.send(kind, request.sequence, payload)
        except ConnectionEndedError:
            self._close(request.connection)

    def _say_goodbye(self) -> None:
        """Answer the requests that were read, then say goodbye, so that workers send their next requests elsewhere."""
        while self._queue.rows:
            self._run_batch()
        connections = list(self._connections.values())
        for connection in connections:
            with contextlib.suppress(ConnectionEndedError):
                connection.send(MessageKind.GOODBYE)
        # Every socket has accepted as much of its goodbye as it can, so waiting for one worker does not delay others.
        for connection in connections:
            self._watchdog.turned()
            with contextlib.suppress(ConnectionEndedError):
                connection.finish_sending()

    def _changed(self) -> None:
        if self._tell_seconds is None:
            self._tell_seconds = time.monotonic() + _STATE_SECONDS

    def _tell_changes(self) -> None:
        if self._tell_seconds is None or time.monotonic() < self._tell_seconds:
            return
        self._tell_seconds = None
        self._tell(
            packets.State(
                self._attached, len(self._connections), self._last_used_seconds, self._queue.record.to_plain()
            )
        )

    def _tell(self, packet: packets.Packet) -> None:
        try:
            self._control.send(packets.encode(packet))
        except OSError:
            os._exit(0)
