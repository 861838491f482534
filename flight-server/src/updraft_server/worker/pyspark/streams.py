# SPDX-License-Identifier: Apache-2.0
"""Choice of the stream that replaces PySpark's socket, by the kind of function."""

from typing import TypeAlias

from updraft.errors import ProtocolError
from updraft.v1.exchange_pb2 import SessionPayload
from updraft_server.worker.exchange import Exchange
from updraft_server.worker.pyspark.arrow_stream import ArrowStream
from updraft_server.worker.pyspark.group_readers import AnsweredRequests, CogroupReader, GroupReader, as_batches
from updraft_server.worker.pyspark.grouped_stream import GroupedStream
from updraft_server.worker.pyspark.kinds import Answers, Kind, Reads
from updraft_server.worker.pyspark.map_replies import MapReplies
from updraft_server.worker.pyspark.pickled_stream import PickledStream
from updraft_server.worker.pyspark.pickled_table_stream import PickledTableStream
from updraft_server.worker.replies import (
    JoinedReplies,
    OneToOneReplies,
    OutputReplies,
    Replies,
)

SessionStream: TypeAlias = ArrowStream | PickledStream | PickledTableStream


def session_stream(kind: Kind, payload: SessionPayload, exchange: Exchange) -> SessionStream:
    """Return the stream for one exchange; raises ProtocolError if the client's command does not fit the kind."""
    if bool(payload.second_input_schema) is not (kind.reads is Reads.COGROUPS):
        raise ProtocolError("second_input_schema belongs to cogroups, and to them only")
    if payload.HasField("udtf") is not (kind.answers is Answers.OUTPUTS):
        raise ProtocolError("udtf belongs to table functions, and to them only")
    udfs = payload.udfs
    if kind.answers is not Answers.OUTPUTS and not (udfs and all(udf.commands for udf in udfs)):
        raise ProtocolError("the command's payload has no UDF, or one without a function")
    if kind.reads is Reads.PICKLED_LISTS:
        return PickledTableStream(exchange) if kind.answers is Answers.OUTPUTS else PickledStream(exchange)
    if kind.reads is not Reads.BATCHES:
        exchange.accept_groups(payload.second_input_schema)
    replies = _replies(kind, payload, exchange)
    source = AnsweredRequests(exchange, replies, kind.answers)
    match kind.reads:
        case Reads.BATCHES:
            return ArrowStream(replies, source.slices())
        case Reads.GROUP_BATCHES:
            return ArrowStream(replies, as_batches(GroupReader(source)))
        case Reads.COGROUPS:
            return GroupedStream(replies, CogroupReader(source))
        case _:
            return GroupedStream(replies, GroupReader(source))


def _replies(kind: Kind, payload: SessionPayload, exchange: Exchange) -> Replies:
    match kind.answers:
        case Answers.FREELY if kind.reads is Reads.BATCHES:
            return MapReplies(exchange)
        case Answers.FREELY:
            return JoinedReplies(exchange)
        case Answers.OUTPUTS:
            return OutputReplies(exchange) if payload.udtf.joined else JoinedReplies(exchange)
        case Answers.PER_ROW:
            return OneToOneReplies(exchange)
        case Answers.PER_GROUP:
            return OneToOneReplies(exchange, ahead=1)
