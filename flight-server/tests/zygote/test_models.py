# SPDX-License-Identifier: Apache-2.0
"""Model processes that a zygote keeps: the test plays its host, its loop, and each process."""

import contextlib
import os
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from updraft.functions import Batching
from updraft_server.ipc.batch_record import BatchRecord
from updraft_server.ipc.model_packets import ModelEnded, ModelFault
from updraft_server.ipc.worker_usage import WorkerUsage
from updraft_server.worker.model import control
from updraft_server.worker.model.channel import MAX_PACKET_BYTES, Connect, Connected, decode, encode
from updraft_server.worker.model.function import BatchedFunction
from updraft_server.worker.model.watchdog import Watchdog
from updraft_server.zygote.model_replica import ForkedModel
from updraft_server.zygote.models import Models

BUDGET_BYTES = 100
LARGE_BYTES = 101


class Process:
    """Forked process, whose progress the test drives."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Becomes readable once the process has ended, like a pidfd.
        pidfd, self._end = os.pipe()
        self.forked = ForkedModel(os.getpid(), pidfd, theirs, Watchdog())
        self.status = 0
        self._was_retired = self._runs_alone = False

    def says(self, packet: control.Packet) -> None:
        self.control.send(control.encode(packet))

    def ends(self, status: int = 0) -> None:
        self.status = status
        self.close()

    def close(self) -> None:
        """Close the process's ends; idempotent."""
        if self.control.fileno() >= 0:
            os.close(self._end)
        self.control.close()

    def reads(self) -> None:
        """Take all messages that it was sent."""
        with contextlib.suppress(BlockingIOError):
            while True:
                packet = control.decode(self.control.recv(control.MAX_PACKET_BYTES, socket.MSG_DONTWAIT))
                self._was_retired |= isinstance(packet, control.Retire)
                self._runs_alone |= isinstance(packet, control.RunAlone)

    @property
    def runs_alone(self) -> bool:
        self.reads()
        return self._runs_alone

    @property
    def was_retired(self) -> bool:
        self.reads()
        return self._was_retired


class Zygote:
    """Host and loop of the models."""

    def __init__(self, *names: str, budget_bytes: int) -> None:
        self.sizes = dict.fromkeys(names, LARGE_BYTES)
        self.started: list[Process] = []
        self.faults: dict[str, str] = {}
        self._workers: list[socket.socket] = []
        self._buried: list[Process] = []
        self._handlers: dict[Any, Callable[[], None]] = {}
        functions = [SimpleNamespace(name=name, version="1", batching=Batching()) for name in names]
        self.models = Models(
            cast(list[BatchedFunction], functions),
            self,
            self._handlers.__setitem__,
            lambda source: self._handlers.pop(source, None) and None,
            budget_bytes=budget_bytes,
            most_bytes=1000,
        )
        self.models.start()

    def fork_model(self, model: str, function: BatchedFunction, number: int) -> ForkedModel:
        self.started.append(Process(function.name))
        return self.started[-1].forked

    def bury_model(self, model: str, process: ForkedModel) -> int:
        ended = next(each for each in self.started if each.forked is process)
        self._buried.append(ended)
        return ended.status

    def take_of_models(self, models: Mapping[str, ForkedModel]) -> Mapping[str, WorkerUsage]:
        names = {each.forked: each.name for each in self.started}
        return {model: WorkerUsage(0, "", own_bytes=self.sizes[names[process]]) for model, process in models.items()}

    def tell_of_models(self, packet: ModelEnded | ModelFault) -> None:
        if isinstance(packet, ModelFault):
            self.faults[packet.name] = packet.fault

    def worker(self, name: str) -> socket.socket:
        """Return the channel of a worker that asks for a connection to the function."""
        channel = self.models.model_channels.open(f"worker-{len(self._workers)}")
        self._workers.append(channel)
        channel.settimeout(0)
        channel.send(encode(Connect(name, "1")))
        self.turn()
        return channel

    def measure(self) -> None:
        """Run a turn in which all processes are measured."""
        self.models._next_look_seconds = 0.0
        self.turn()

    def turn(self) -> None:
        for source, handle in list(self._handlers.items()):
            if source in self._handlers and _is_readable(source):
                handle()
        self.models.turn()

    def close(self) -> None:
        self.models.close()
        for process in self.started:
            process.close()
            if process not in self._buried:
                os.close(process.forked.pidfd)
        for channel in self._workers:
            channel.close()

    @property
    def names(self) -> list[str]:
        return [process.name for process in self.started]


def _is_readable(source: socket.socket | int) -> bool:
    # Unlike select, poll takes descriptors above 1023.
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(0))


def is_connected(channel: socket.socket) -> bool:
    try:
        data, descriptors, _, _ = socket.recv_fds(channel, MAX_PACKET_BYTES, 1)
    except BlockingIOError:
        return False
    for descriptor in descriptors:
        os.close(descriptor)
    return isinstance(decode(data), Connected)


@pytest.fixture
def zygote() -> Iterator[Zygote]:
    """Return a zygote in which each large function takes the whole budget."""
    made = Zygote("first", "second", "small", budget_bytes=BUDGET_BYTES)
    yield made
    made.close()


def test_with_a_budget_a_function_is_loaded_when_it_is_called(zygote: Zygote) -> None:
    assert zygote.names == []
    channel = zygote.worker("second")
    assert zygote.names == ["second"]
    zygote.started[0].says(control.Ready())
    zygote.turn()
    assert is_connected(channel)


def test_a_function_that_has_to_make_room_as_it_is_called_comes_back_after_those_that_waited_longer(
    zygote: Zygote,
) -> None:
    assert not is_connected(zygote.worker("first"))
    (process,) = zygote.started
    process.says(control.Ready())
    zygote.turn()
    other = zygote.worker("second")
    assert not process.was_retired
    # The exchange has ended, and the next one begins at the same moment.
    process.says(control.State(1, 0, 0.0, BatchRecord().to_plain()))
    again = zygote.worker("first")
    assert process.was_retired
    process.ends()
    zygote.turn()
    successor = zygote.started[-1]
    successor.says(control.Ready())
    zygote.turn()
    assert is_connected(other)
    assert not is_connected(again)
    successor.says(control.State(1, 0, 0.0, BatchRecord().to_plain()))
    zygote.turn()
    successor.ends()
    zygote.turn()
    zygote.started[-1].says(control.Ready())
    zygote.turn()
    assert is_connected(again)
    assert zygote.names == ["first", "second", "first"]


def test_a_small_function_need_not_wait_for_the_room_of_a_large_one(zygote: Zygote) -> None:
    zygote.sizes = {"first": 60, "second": 60, "small": 30}
    idle = control.State(1, 0, 0.0, BatchRecord().to_plain())
    for name in ("second", "first"):
        assert is_connected(loaded(zygote, name))
        zygote.measure()
        zygote.started[0].says(idle)
        zygote.turn()
    zygote.measure()
    zygote.started[0].ends()
    zygote.turn()
    assert zygote.names == ["second", "first"]
    zygote.worker("second")
    # The first process has not been told to go: there would be no room for the second.
    zygote.worker("small")
    assert zygote.names == ["second", "first"]
    zygote.started[1].says(idle)
    zygote.turn()
    assert zygote.names == ["second", "first", "small"]
    zygote.started[1].ends()
    zygote.turn()
    assert zygote.names == ["second", "first", "small", "second"]


def loaded(zygote: Zygote, name: str) -> socket.socket:
    """Return the channel of a worker whose call has loaded the function."""
    channel = zygote.worker(name)
    zygote.started[-1].says(control.Ready())
    zygote.turn()
    return channel


def test_others_make_no_room_for_a_function_that_has_died_and_that_nobody_calls(zygote: Zygote) -> None:
    channel = zygote.worker("first")
    (process,) = zygote.started
    process.says(control.Ready())
    zygote.turn()
    assert is_connected(channel)
    process.ends(-11)
    zygote.turn()
    assert "SIGSEGV" in zygote.faults["first"]
    assert zygote.names == ["first"]
    zygote.worker("first")
    assert zygote.names == ["first", "first"]


@pytest.mark.parametrize("is_suspect", [True, False])
def test_only_deaths_with_rows_that_nobody_suspects_delay_the_next_process(is_suspect: bool) -> None:
    zygote = Zygote("first", budget_bytes=0)
    for _ in range(2):
        process = zygote.started[-1]
        process.says(control.Ready())
        process.says(control.Suspect(is_running=True))
        if not is_suspect:
            process.says(control.Suspect(is_running=False))
        process.ends(-11)
        zygote.turn()
    assert len(zygote.started) == (3 if is_suspect else 2)
    zygote.close()


def test_processes_run_alone_for_a_time_after_one_has_died() -> None:
    zygote = Zygote("first", budget_bytes=0)
    zygote.started[0].says(control.Ready())
    zygote.turn()
    assert zygote.started[0].runs_alone is False
    zygote.started[0].ends(-11)
    zygote.turn()
    assert zygote.started[1].runs_alone is True
    zygote.close()


def test_workers_wait_for_a_process_that_takes_no_connections_while_it_works(zygote: Zygote) -> None:
    zygote.worker("first")
    (process,) = zygote.started
    process.says(control.Ready())
    zygote.turn()
    # More than its socket holds.
    channels = [zygote.worker("first") for _ in range(300)]
    assert not is_connected(channels[-1])
    while not is_connected(channels[-1]):
        process.reads()
        zygote.turn()


def test_without_a_budget_one_that_has_died_is_replaced_at_once() -> None:
    zygote = Zygote("first", "second", budget_bytes=0)
    assert zygote.names == ["first", "second"]
    zygote.started[0].says(control.Ready())
    zygote.turn()
    zygote.started[0].ends(-11)
    zygote.turn()
    assert zygote.names == ["first", "second", "first"]
    zygote.close()
