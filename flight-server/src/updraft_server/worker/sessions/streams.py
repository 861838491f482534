# SPDX-License-Identifier: Apache-2.0
"""Chooses what stands in the place of PySpark's socket, by the kind of function."""

from typing import TypeAlias

from updraft_server.worker.exchange import Exchange
from updraft_server.worker.failures import ProtocolFailure
from updraft_server.worker.sessions.arrow_stream import ArrowStream
from updraft_server.worker.sessions.group_batch_stream import GroupBatchStream
from updraft_server.worker.sessions.group_readers import AnsweredRequests, CogroupReader, GroupReader
from updraft_server.worker.sessions.grouped_stream import GroupedStream
from updraft_server.worker.sessions.kinds import Answers, Kind, Reads
from updraft_server.worker.sessions.pickled_stream import PickledStream
from updraft_server.worker.sessions.replies import FreeRunningReplies, JoinedReplies, OneToOneReplies, Replies

SessionStream: TypeAlias = ArrowStream | PickledStream


def session_stream(kind: Kind, second_input_schema: bytes, exchange: Exchange) -> SessionStream:
    """The stream for one exchange; raises ProtocolFailure when the client's schemas do not fit the kind."""
    if bool(second_input_schema) is not (kind.reads is Reads.COGROUPS):
        raise ProtocolFailure("second_input_schema belongs to cogroups, and to them only")
    match kind.reads:
        case Reads.PICKLED_LISTS:
            return PickledStream(exchange)
        case Reads.BATCHES:
            return ArrowStream(exchange, _replies(kind, exchange))
        case _:
            exchange.accept_groups(second_input_schema)
            replies = _replies(kind, exchange)
            return _grouped(kind, exchange, replies, AnsweredRequests(exchange, replies, kind.answers))


def _grouped(kind: Kind, exchange: Exchange, replies: Replies, source: AnsweredRequests) -> SessionStream:
    match kind.reads:
        case Reads.COGROUPS:
            return GroupedStream(exchange, replies, CogroupReader(source))
        case Reads.GROUP_BATCHES:
            return GroupBatchStream(exchange, replies, GroupReader(source))
        case _:
            return GroupedStream(exchange, replies, GroupReader(source))


def _replies(kind: Kind, exchange: Exchange) -> Replies:
    if kind.answers is not Answers.FREELY:
        return OneToOneReplies(exchange)
    return FreeRunningReplies(exchange) if kind.reads is Reads.BATCHES else JoinedReplies(exchange)
