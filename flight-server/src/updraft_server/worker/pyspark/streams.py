# SPDX-License-Identifier: Apache-2.0
"""Chooses what stands in the place of PySpark's socket, by the kind of function."""

from typing import TypeAlias

from updraft.errors import ProtocolError
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.pyspark.arrow_stream import ArrowStream
from updraft_server.worker.pyspark.group_batch_stream import GroupBatchStream
from updraft_server.worker.pyspark.group_readers import AnsweredRequests, CogroupReader, GroupReader
from updraft_server.worker.pyspark.grouped_stream import GroupedStream
from updraft_server.worker.pyspark.kinds import Answers, Kind, Reads
from updraft_server.worker.pyspark.pickled_stream import PickledStream
from updraft_server.worker.pyspark.pickled_table_stream import PickledTableStream
from updraft_server.worker.pyspark.replies import (
    FreeRunningReplies,
    JoinedReplies,
    OneToOneReplies,
    OutputReplies,
    Replies,
)
from updraft_server.worker.pyspark.session_function import SessionFunction

SessionStream: TypeAlias = ArrowStream | PickledStream | PickledTableStream


def session_stream(kind: Kind, function: SessionFunction, exchange: Exchange) -> SessionStream:
    """The stream for one exchange; raises ProtocolError when the client's command does not fit the kind."""
    if bool(function.payload.second_input_schema) is not (kind.reads is Reads.COGROUPS):
        raise ProtocolError("second_input_schema belongs to cogroups, and to them only")
    if function.payload.HasField("udtf") is not (kind.answers is Answers.OUTPUTS):
        raise ProtocolError("udtf belongs to table functions, and to them only")
    udfs = function.payload.udfs
    if kind.answers is not Answers.OUTPUTS and not (udfs and all(udf.commands for udf in udfs)):
        raise ProtocolError("the command's payload has no UDF, or one without a function")
    match kind.reads:
        case Reads.PICKLED_LISTS:
            return PickledTableStream(exchange) if kind.answers is Answers.OUTPUTS else PickledStream(exchange)
        case Reads.BATCHES:
            return ArrowStream(exchange, _replies(kind, function, exchange))
        case _:
            exchange.accept_groups(function.payload.second_input_schema)
            replies = _replies(kind, function, exchange)
            return _grouped(kind, exchange, replies, AnsweredRequests(exchange, replies, kind.answers))


def _grouped(kind: Kind, exchange: Exchange, replies: Replies, source: AnsweredRequests) -> SessionStream:
    match kind.reads:
        case Reads.COGROUPS:
            return GroupedStream(exchange, replies, CogroupReader(source))
        case Reads.GROUP_BATCHES:
            return GroupBatchStream(exchange, replies, GroupReader(source))
        case _:
            return GroupedStream(exchange, replies, GroupReader(source))


def _replies(kind: Kind, function: SessionFunction, exchange: Exchange) -> Replies:
    match kind.answers:
        case Answers.FREELY if kind.reads is Reads.BATCHES:
            return FreeRunningReplies(exchange)
        case Answers.FREELY:
            return JoinedReplies(exchange)
        case Answers.OUTPUTS:
            return OutputReplies(exchange) if function.payload.udtf.joined else JoinedReplies(exchange)
        case Answers.PER_ROW:
            return OneToOneReplies(exchange)
        case Answers.PER_GROUP:
            return OneToOneReplies(exchange, ahead=1)
