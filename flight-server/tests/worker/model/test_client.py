# SPDX-License-Identifier: Apache-2.0
"""Worker's end of a model connection: the test plays the zygote that connects it, and the model processes."""

import socket
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from updraft.errors import FunctionLoadError, InternalError, UserError, WorkerError
from updraft_server.worker.model.channel import (
    MAX_PACKET_BYTES,
    AskFate,
    Connect,
    Connected,
    Fate,
    ModelChannel,
    Refused,
    decode,
    encode,
)
from updraft_server.worker.model.client import ModelClient, SuspectError
from updraft_server.worker.model.messages import HEADER_BYTES, MessageKind, decode_header, encode_header

SCHEMA = pa.schema([pa.field("number", pa.int64())])
ROWS = pa.RecordBatch.from_arrays([pa.array([1, 2, 3], pa.int64())], schema=SCHEMA)
FUNCTION = SimpleNamespace(name="f", version="1", argument_schema=SCHEMA, result_schema=SCHEMA, is_deterministic=True)
RANDOM = SimpleNamespace(**{**vars(FUNCTION), "is_deterministic": False})

Process = Callable[[socket.socket, MessageKind], None]


def echo(connection: socket.socket, _: MessageKind) -> None:
    answer(connection, MessageKind.RESULT, ROWS.serialize().to_pybytes())


def starts_and_dies(connection: socket.socket, kind: MessageKind) -> None:
    if kind is MessageKind.SUSPECT_ROWS:
        answer(connection, MessageKind.STARTED)


def dies(connection: socket.socket, _: MessageKind) -> None:
    return


def says_goodbye(connection: socket.socket, _: MessageKind) -> None:
    answer(connection, MessageKind.GOODBYE)


def starts_and_answers(connection: socket.socket, kind: MessageKind) -> None:
    assert kind is MessageKind.SUSPECT_ROWS
    answer(connection, MessageKind.STARTED)
    echo(connection, kind)


def fails(connection: socket.socket, _: MessageKind) -> None:
    answer(connection, MessageKind.FAILED, UserError("no", exception_class="Mine").to_message().SerializeToString())


def answers_too_few(connection: socket.socket, _: MessageKind) -> None:
    answer(connection, MessageKind.RESULT, ROWS.slice(0, 1).serialize().to_pybytes())


def answers_nonsense(connection: socket.socket, _: MessageKind) -> None:
    answer(connection, MessageKind.RESULT, b"nonsense")


def answer(connection: socket.socket, kind: MessageKind, payload: bytes = b"") -> None:
    connection.sendall(encode_header(kind, 1, 0.0, len(payload)) + payload)


class Zygote(threading.Thread):
    """Zygote that answers each request with the next process or a refusal; each process serves one request."""

    def __init__(self, model_channel: socket.socket, processes: list[Process | Refused]) -> None:
        super().__init__()
        self._model_channel = model_channel
        self._processes = processes
        self.kinds: list[MessageKind] = []
        self.questions: list[object] = []

    def run(self) -> None:
        with self._model_channel:
            self._serve()

    def _serve(self) -> None:
        while data := self._model_channel.recv(MAX_PACKET_BYTES):
            question = decode(data)
            self.questions.append(question)
            if isinstance(question, AskFate):
                self._model_channel.send(encode(Fate("was killed by SIGSEGV")))
                continue
            process = self._processes.pop(0)
            if isinstance(process, Refused):
                self._model_channel.send(encode(process))
                continue
            ours, theirs = socket.socketpair()
            with ours, theirs:
                socket.send_fds(self._model_channel, [encode(Connected("model-1"))], [theirs.fileno()])
                theirs.close()
                message = decode_header(ours.recv(HEADER_BYTES, socket.MSG_WAITALL))
                ours.recv(message.payload_bytes, socket.MSG_WAITALL)
                self.kinds.append(message.kind)
                process(ours, message.kind)


Clients = Callable[..., tuple[ModelClient, Zygote]]


@pytest.fixture
def clients() -> Iterator[Clients]:
    started: list[tuple[ModelClient, ModelChannel, Zygote]] = []

    def client(*processes: Process | Refused, function: Any = FUNCTION) -> tuple[ModelClient, Zygote]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        zygote = Zygote(theirs, list(processes))
        zygote.start()
        model_channel = ModelChannel(ours.detach())
        made = ModelClient(function, model_channel, max_batch_rows=1000)
        started.append((made, model_channel, zygote))
        return made, zygote

    yield client
    for made, model_channel, zygote in started:
        made.close()
        model_channel.close()
        zygote.join()


def test_a_batch_is_answered(clients: Clients) -> None:
    client, zygote = clients(echo)
    assert client.call(ROWS, sequence=1) == ROWS
    assert zygote.questions == [Connect("f", "1")]


def test_a_goodbye_leads_to_the_next_process_and_is_no_suspicion(clients: Clients) -> None:
    client, zygote = clients(says_goodbye, says_goodbye, echo)
    assert client.call(ROWS, sequence=1) == ROWS
    assert zygote.kinds == [MessageKind.ROWS] * 3


def test_a_batch_whose_process_died_is_called_again_but_alone(clients: Clients) -> None:
    client, zygote = clients(dies, starts_and_answers)
    assert client.call(ROWS, sequence=1) == ROWS
    assert zygote.kinds == [MessageKind.ROWS, MessageKind.SUSPECT_ROWS]


def test_a_batch_that_ends_a_process_alone_is_to_blame(clients: Clients) -> None:
    client, _ = clients(dies, starts_and_dies)
    with pytest.raises(SuspectError, match="the model process of function 'f' was killed by SIGSEGV"):
        client.call(ROWS, sequence=1)


def test_a_batch_that_was_not_started_when_a_process_died_is_innocent(clients: Clients) -> None:
    client, _ = clients(dies, dies, dies, starts_and_answers)
    assert client.call(ROWS, sequence=1) == ROWS


def test_processes_that_die_again_and_again_are_given_up(clients: Clients) -> None:
    client, _ = clients(*[dies] * 6)
    with pytest.raises(WorkerError, match="SIGSEGV") as raised:
        client.call(ROWS, sequence=1)
    # The rows that ended it are unknown.
    assert not isinstance(raised.value, SuspectError)


def test_a_batch_of_a_function_that_must_not_be_repeated_fails_with_its_process(clients: Clients) -> None:
    client, zygote = clients(dies, function=RANDOM)
    with pytest.raises(WorkerError, match="SIGSEGV"):
        client.call(ROWS, sequence=1)
    assert zygote.kinds == [MessageKind.ROWS]


def test_rows_alone_in_a_batch_are_to_blame_without_a_repetition(clients: Clients) -> None:
    def starts(connection: socket.socket, _: MessageKind) -> None:
        answer(connection, MessageKind.STARTED)

    def starts_and_is_joined(connection: socket.socket, _: MessageKind) -> None:
        answer(connection, MessageKind.STARTED)
        answer(connection, MessageKind.JOINED)

    client, zygote = clients(starts, starts_and_is_joined, function=RANDOM)
    with pytest.raises(SuspectError, match="SIGSEGV"):
        client.call(ROWS, sequence=1)
    with pytest.raises(WorkerError, match="SIGSEGV") as raised:
        client.call(ROWS, sequence=2)
    assert not isinstance(raised.value, SuspectError)
    assert zygote.kinds == [MessageKind.ROWS] * 2


def test_what_the_function_raised_is_raised_here(clients: Clients) -> None:
    client, _ = clients(fails)
    with pytest.raises(UserError, match="no") as raised:
        client.call(ROWS, sequence=1)
    assert raised.value.exception_class == "Mine"


def test_a_refusal_says_why_and_whether_another_call_may_succeed(clients: Clients) -> None:
    client, _ = clients(Refused("is broken", may_retry=False), Refused("is away", may_retry=True))
    with pytest.raises(FunctionLoadError, match="function 'f' is broken"):
        client.connect()
    with pytest.raises(WorkerError, match="function 'f' is away"):
        client.connect()


def test_an_answer_of_other_rows_is_never_a_result(clients: Clients) -> None:
    client, _ = clients(answers_too_few)
    with pytest.raises(InternalError):
        client.call(ROWS, sequence=1)
    client, _ = clients(answers_nonsense)
    with pytest.raises(WorkerError, match="returned no batch"):
        client.call(ROWS, sequence=1)


def test_without_a_zygote_there_is_no_way() -> None:
    for model_channel in (ModelChannel(), _closed_door()):
        client = ModelClient(cast(Any, FUNCTION), model_channel, max_batch_rows=1000)
        with pytest.raises(WorkerError, match="cannot reach the model process of function 'f'"):
            client.connect()
        model_channel.close()


def _closed_door() -> ModelChannel:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    model_channel = ModelChannel(ours.detach())
    assert model_channel.is_lost
    return model_channel
