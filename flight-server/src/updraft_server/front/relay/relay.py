# SPDX-License-Identifier: Apache-2.0
"""Relay of a running exchange, in two directions: client messages to the worker, and the worker's replies back.

The front does not read the bytes; only the worker (`updraft_server.worker`) interprets them. A slow receiver holds back
only its own direction. `updraft_server.front.exchange` decides how the end of a relay affects the worker and the
client.
"""

import asyncio
import enum
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from updraft.errors import InternalError, LimitError, ProtocolError, UpdraftError, WorkerError
from updraft.flight_data import join_flight_data
from updraft.service.exchange import LAST_MESSAGE_TIMEOUT_SECONDS, Call, event_message
from updraft.service.lifecycle import next_phase
from updraft.v1.exchange_pb2 import ReplyMetadata, SegmentRange
from updraft_server.front.relay.batch_limits import BatchTimeout
from updraft_server.front.relay.client_batches import ClientBatches
from updraft_server.front.relay.segment import Segments
from updraft_server.front.relay.segment_offer import SegmentOffer
from updraft_server.front.relay.transfer import Transfer
from updraft_server.front.relay.worker_replies import ReplyMetadataStart, TimedLoad, error_of_worker
from updraft_server.front.request.request import Request
from updraft_server.ipc.assignment import Assignment
from updraft_server.ipc.frame_stream import (
    Frame,
    FrameReceiver,
    FrameSender,
    FrameTooLargeError,
    LostMemoryError,
    PeerClosedError,
)
from updraft_server.ipc.frames import FrameError, FrameKind
from updraft_server.pool.leases import Lease, LeaseOutcome
from updraft_server.pool.worker_events import WorkerDeath

# Time for a worker's exit status to arrive after its socket has closed.
_EXIT_STATUS_TIMEOUT_SECONDS = 2.0
# If sending a message takes longer than this, the exchange counts as waiting for the client.
_PROMPT_SECONDS = 0.1


class Side(enum.Enum):
    """Side that has to act next."""

    CLIENT = "client"
    WORKER = "worker"


class RelayPhase(enum.Enum):
    """Phase of a relay."""

    ASSIGNING = "assigning"  # the worker does not have its command yet
    RELAYING = "relaying"  # messages pass in both directions
    ANSWERING = "answering"  # the worker has all input and still replies
    SETTLING = "settling"  # the outcome is known; the client may still be taking a reply


class RelayEvent(enum.Enum):
    """Event that moves a relay to another phase."""

    ASSIGNED = "assigned"
    INPUT_ENDED = "input ended"
    OUTCOME_KNOWN = "outcome known"


TRANSITIONS = {
    (RelayPhase.ASSIGNING, RelayEvent.ASSIGNED): RelayPhase.RELAYING,
    (RelayPhase.RELAYING, RelayEvent.INPUT_ENDED): RelayPhase.ANSWERING,
    # Either side can fail at any time, and a worker can finish before its client.
    **dict.fromkeys([(phase, RelayEvent.OUTCOME_KNOWN) for phase in RelayPhase], RelayPhase.SETTLING),
}


class RelayLimits(NamedTuple):
    """Limits of one exchange."""

    max_message_bytes: int
    batch_timeout: BatchTimeout
    segments: Segments
    """Segments of exchanges whose clients take one."""


@dataclass(frozen=True, slots=True)
class RelayEnd:
    """State in which a relay ended. It shows who is to blame."""

    request: Request
    worker: str
    """Id of the worker."""
    batch_timeout: BatchTimeout
    """Time limits of the function."""
    reported: FrameKind | None = None
    """Kind of the frame with which the worker reported an error; None if it reported none."""
    lost_worker: bool = False
    """Whether the worker closed its socket before it was done."""
    exceeded_limit: bool = False
    """Whether the front ended the exchange because the function exceeded a limit."""


class Relay:
    """Relay between one call and one worker, until the worker ends the exchange."""

    def __init__(self, call: Call, lease: Lease, request: Request, limits: RelayLimits, transfer: Transfer) -> None:
        self._call = call
        self._lease = lease
        self.worker = lease.worker
        """Id of the worker."""
        self._request = request
        self.subject = request.subject
        """`Request.subject`."""
        self._plain = request.plain
        self._limits = limits
        self.batch_timeout = limits.batch_timeout
        """Time limits of the function."""
        self._transfer = transfer
        self._sender = FrameSender(lease.socket)
        self._receiver = FrameReceiver(lease.socket, max_payload_bytes=limits.max_message_bytes)
        self._ended: asyncio.Future[UpdraftError] = asyncio.get_running_loop().create_future()
        self._phase = RelayPhase.ASSIGNING
        self._segment = SegmentOffer(limits.segments, transfer, is_wanted=request.command.takes_segment)
        self._batches = ClientBatches(call, self._sender, request, limits.max_message_bytes, transfer, self._segment)
        self._last_metadata = ReplyMetadataStart()
        self._said_by_worker = 0
        self.has_begun = not request.is_session
        """Whether the function has begun to work on batches. A session function first imports its modules."""
        self._replies: asyncio.Task[LeaseOutcome] | None = None
        self._writing = False
        self._writing_since = 0.0
        self.end_state = RelayEnd(request, lease.worker, limits.batch_timeout)
        self._load = TimedLoad(self.end_for)
        self._has_finished = False
        """Whether the worker's last message has been sent to the client."""

    async def run(self, assignment: Assignment) -> LeaseOutcome:
        """Relay until the worker reports that it is done, or until `end`; raise UpdraftError.

        A failure of the worker after its last message does not fail the exchange: by then the client has received
        everything and accepts no further message.
        """
        try:
            return await self._run(assignment)
        except ProtocolError:
            raise
        except UpdraftError:
            if not self._has_finished:
                raise
            self._transfer.rows += self._batches.rows
            return LeaseOutcome.BROKEN

    async def _run(self, assignment: Assignment) -> LeaseOutcome:
        self._lease.death.add_done_callback(self._worker_died)
        requests = asyncio.create_task(self._relay_requests(assignment))
        self._replies = replies = asyncio.create_task(self._relay_replies())
        try:
            awaited: set[asyncio.Future[Any]] = {requests, replies, self._ended}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            if requests.done() and not replies.done():
                # The client's side is finished or has failed. Raise a failure now, without waiting for the worker.
                requests.result()
                await asyncio.wait(awaited - {requests}, return_when=asyncio.FIRST_COMPLETED)
            if not replies.done():
                raise self._ended.result()
            return replies.result()
        finally:
            self._handle(RelayEvent.OUTCOME_KNOWN)
            self._load.end()
            self._lease.death.remove_done_callback(self._worker_died)
            requests.cancel()
            if not self._writing:
                replies.cancel()
            try:
                # Both tasks must stop using the worker's socket before `run` returns, because the caller then gives the
                # worker back.
                await asyncio.gather(requests, *([] if self._writing else [replies]), return_exceptions=True)
            finally:
                self._segment.close()

    def end(self, error: UpdraftError) -> None:
        """End `run` with an error, unless `run` has ended already."""
        if not self._ended.done():
            self._ended.set_result(error)

    def end_for(self, excess: UpdraftError) -> None:
        """End `run` with an error because the function exceeded a limit, unless `run` has ended already."""
        if not self._ended.done():
            self.end_state = replace(self.end_state, exceeded_limit=True)
            self.end(excess)

    @property
    def batches_at_once(self) -> int:
        """Most batches that the function may be working on now.

        The front cannot see how many batches the worker has joined for an aggregate.
        """
        return 1 + self.taken if self._request.joins_batches else 1

    @property
    def passed(self) -> tuple[int, int]:
        """Counts that change with everything that the worker accepts or sends."""
        return self._transfer.received_messages, self._said_by_worker

    @property
    def client_activity(self) -> tuple[int, int, int]:
        """Counts that change with everything that the client sends, and with every reply that the client accepts."""
        return self._transfer.received_messages, self._transfer.keep_alives, self._transfer.sent_messages

    @property
    def is_loading(self) -> bool:
        """Whether the function is being loaded. A load has its own time limit; other limits are suspended meanwhile."""
        return self._load.is_running

    @property
    def turn(self) -> Side | None:
        """Side that the exchange waits for; None during a load, or for a client whose keepalives cannot arrive.

        Keepalives cannot arrive after the client has half-closed, nor while batches wait for the worker, because they
        queue behind those batches.
        """
        if self.is_loading:
            return None
        if self._writing:
            input_ended = self._phase is RelayPhase.ANSWERING
            return None if input_ended or self._sender.is_held_back else Side.CLIENT
        return Side.WORKER if self._is_workers_turn() else Side.CLIENT

    @property
    def is_working(self) -> bool:
        """Whether the function can work: it waits neither for a batch nor for a client that does not read.

        A function that keeps its client busy with replies counts as working.
        """
        if self.is_loading:
            return False
        if self._writing and asyncio.get_running_loop().time() - self._writing_since > _PROMPT_SECONDS:
            return False
        return self._is_workers_turn()

    @property
    def taken(self) -> int:
        """Number of batches that the function has taken, as its worker reports it; at most what the front received."""
        return min(self._claimed(), self._transfer.batches)

    def _is_workers_turn(self) -> bool:
        if self._phase is not RelayPhase.RELAYING:
            return True
        # Whatever the worker reports, it cannot have taken a message that still waits for its socket. The counts alone
        # would miss a waiting part of a batch: the part is not counted as a batch yet, but the client's next messages
        # queue behind it.
        return self._sender.is_held_back or self._transfer.batches > self._claimed()

    def _claimed(self) -> int:
        # The first message reports that the function has begun the first batch, not that it wants another one.
        return self._last_metadata.consumed if self._said_by_worker > 1 else 0

    async def settle(self) -> None:
        """Wait until no message is being sent to the client, so that an error can be sent.

        gRPC cannot cancel a message that it has begun to send. The wait is limited in case the client does not read.
        """
        if self._replies is None:
            return
        await asyncio.wait({self._replies}, timeout=LAST_MESSAGE_TIMEOUT_SECONDS)
        self._replies.cancel()
        # Retrieve the exception if the task has failed, because asyncio would log it otherwise.
        await asyncio.gather(self._replies, return_exceptions=True)

    def _handle(self, event: RelayEvent) -> None:
        self._phase = next_phase(TRANSITIONS, self._phase, event)

    def _worker_died(self, _death: asyncio.Future[WorkerDeath]) -> None:
        self._receiver.peer_is_gone()

    async def _relay_requests(self, assignment: Assignment) -> None:
        request = self._request
        try:
            await self._sender.send(FrameKind.COMMAND, assignment.encode(), request.schema, request.payload)
            self._handle(RelayEvent.ASSIGNED)
            await self._batches.relay()
            await self._sender.send(FrameKind.END)
            self._handle(RelayEvent.INPUT_ENDED)
        except PeerClosedError:
            # The other direction delivers the worker's last messages and finds out why the worker has ended.
            return
        except FrameError as error:
            # The header and metadata of a frame have limits that may be lower than --max-message-bytes.
            raise LimitError(f"a client message is larger than a worker accepts: {error}") from None
        except LostMemoryError as error:
            raise ProtocolError(f"a batch is not in the exchange's segment any more: {error}") from None

    async def _relay_replies(self) -> LeaseOutcome:
        if not self._plain:
            await self._send(self._segment.admission)
        try:
            while True:
                frame = await self._receiver.receive()
                match frame.kind:
                    case FrameKind.MESSAGE:
                        self._said_by_worker += 1
                        self._last_metadata = ReplyMetadataStart.of(frame.app_metadata)
                        self.has_begun = self.has_begun or self._last_metadata.consumed > 0
                        if segment := self._segment.due():
                            await self._send(event_message(ReplyMetadata(segment=segment.offer)))
                            self._receiver.reserve = self._segment.place
                        self._segment.received(frame)
                        await self._relay_reply(frame)
                        if not frame.data_header:
                            self._has_finished = self._last_metadata.is_finish
                        if self._phase is RelayPhase.SETTLING:
                            return LeaseOutcome.BROKEN
                    case FrameKind.LOADING:
                        self._begin_load(frame)
                    case FrameKind.LOADED:
                        self._load.end()
                    case FrameKind.DONE:
                        self._transfer.rows += self._batches.rows
                        is_clean = self._phase is RelayPhase.ANSWERING
                        return LeaseOutcome.CLEAN if is_clean else LeaseOutcome.BROKEN
                    case FrameKind.RETIRED:
                        self._transfer.rows += self._batches.rows
                        return LeaseOutcome.RETIRED
                    case FrameKind.FAILED | FrameKind.CRASHED:
                        error = error_of_worker(frame.app_metadata, is_batched=self._request.is_batched)
                        self.end_state = replace(self.end_state, reported=frame.kind)
                        raise error
                    case _:
                        raise FrameError(f"a worker may not send {frame.kind.name}")
        except PeerClosedError:
            raise await self._lost_worker() from None
        except FrameTooLargeError as error:
            raise LimitError(
                f"the function's result of {error.payload_bytes} bytes exceeds the maximum message size, "
                f"{self._limits.max_message_bytes} bytes: send smaller batches"
            ) from None
        except (FrameError, DecodeError) as error:
            raise InternalError(f"the worker sent an invalid frame: {error}") from error
        except LostMemoryError as error:
            raise ProtocolError(f"the exchange's segment has no room for a reply any more: {error}") from None

    def _begin_load(self, frame: Frame) -> None:
        """Begin a load, with its time limit; raise FrameError if the worker may not announce a load now.

        A session function may not announce a load, because its batches would then have more time than their limit. A
        batched function may announce several loads: its worker runs none of the author's code, and waits for each model
        process that loads the function.
        """
        has_begun = self._load.has_been or self._said_by_worker > 0
        if self._request.is_session or (has_begun and not self._request.is_batched):
            raise FrameError("a load may come only once, for a registered function, before any other frame")
        self._load.begin(frame.app_metadata)

    async def _relay_reply(self, frame: Frame) -> None:
        """Pass one message on. Plain Flight has no metadata, so drop a message of metadata alone for such a client."""
        if frame.place is not None:
            # Append the field to the encoded metadata: protobuf parses concatenated messages as one.
            found = ReplyMetadata(body=SegmentRange(position=frame.place.position, size_bytes=len(frame.place.memory)))
            self._transfer.sent_bytes += len(frame.place.memory)
            self._transfer.segment_sent_bytes += len(frame.place.memory)
            metadata = bytes(frame.app_metadata) + found.SerializeToString()
            await self._write(join_flight_data(frame.data_header, metadata, frame.data_body))
        elif not self._plain:
            await self._write(join_flight_data(frame.data_header, frame.app_metadata, frame.data_body))
        elif frame.data_header or frame.data_body:
            await self._write(join_flight_data(frame.data_header, b"", frame.data_body))

    async def _write(self, message: bytes) -> None:
        self._transfer.sent_messages += 1
        self._transfer.sent_bytes += len(message)
        await self._send(message)

    async def _send(self, message: bytes) -> None:
        self._writing, self._writing_since = True, asyncio.get_running_loop().time()
        try:
            await self._call.write(message)
        finally:
            self._writing = False

    async def _lost_worker(self) -> WorkerError:
        """Wait a limited time for the worker's exit status, and return the error for its closed socket."""
        await asyncio.wait({self._lease.death}, timeout=_EXIT_STATUS_TIMEOUT_SECONDS)
        self.end_state = replace(self.end_state, lost_worker=True)
        return WorkerError(f"the worker closed its socket while it ran {self.subject}")
