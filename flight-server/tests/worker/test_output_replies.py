# SPDX-License-Identifier: Apache-2.0
"""However outputs of a table function are joined, split or cut, their ends tell them apart."""

import pickle
from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.serializers import SpecialLengths

from updraft.errors import UpdraftError
from updraft_server.worker.pyspark.pickled_stream import PickledTableStream
from updraft_server.worker.pyspark.wire import INT
from updraft_server.worker.replies import OutputReplies


class Recorder:
    """Stand-in for the exchange: joins replies to outputs again."""

    schema = pa.schema([("_0", pa.binary())])

    def __init__(self, max_reply_batch_bytes: int = 1 << 20) -> None:
        self.max_reply_batch_bytes = self.max_bytes_per_reply = max_reply_batch_bytes
        self.max_records_per_reply = 0
        self.outputs: list[list[Any]] = []
        self.open: list[Any] = []
        self.sequences: list[int] = []

    def reply(self, batch: pa.RecordBatch, *, sequence: int, row_ends: Sequence[int] = ()) -> None:
        self.sequences.append(sequence)
        values, start = batch.column(0).to_pylist(), 0
        for end in row_ends:
            self.outputs.append(self.open + values[start:end])
            self.open, start = [], end
        self.open += values[start:]

    def fail(self, error: UpdraftError) -> NoReturn:
        raise error


@given(st.lists(st.integers(0, 60), max_size=30), st.sampled_from([400, 1 << 20]))
def test_outputs_come_apart_as_they_were_given(sizes: list[int], max_bytes: int) -> None:
    recorder = Recorder(max_bytes)
    replies = OutputReplies(recorder)
    outputs = [list(range(size)) for size in sizes]
    for output in outputs:
        replies.add(pa.record_batch({"x": pa.array(output, pa.int64())}))
    replies.close()
    assert (recorder.outputs, recorder.open) == (outputs, [])
    assert recorder.sequences == list(range(1, len(recorder.sequences) + 1))


def test_no_reply_says_the_ends_of_endlessly_many_outputs_without_rows() -> None:
    recorder = Recorder()
    replies = OutputReplies(recorder)
    for _ in range(10_000):
        replies.add(pa.record_batch({"x": pa.array([], pa.int64())}))
    replies.close()
    assert recorder.outputs == [[]] * 10_000
    assert len(recorder.sequences) > 1


@given(st.lists(st.integers(0, 100_000), max_size=12), st.integers(1, 200_000), st.booleans())
def test_pickled_outputs_come_apart_however_pyspark_writes_them(sizes: list[int], cut: int, flushes: bool) -> None:
    recorder = Recorder()
    stream = PickledTableStream(recorder)  # type: ignore[arg-type]
    outputs = [pickle.dumps("x" * size) for size in sizes]
    trailer = INT.pack(SpecialLengths.END_OF_DATA_SECTION) + b"whatever"
    written = b"".join(INT.pack(len(output)) + output for output in outputs) + trailer
    for start in range(0, len(written), cut):
        stream.write(written[start : start + cut])
        if flushes:
            stream.flush()
    assert bytes(stream.trailer) == trailer
    stream.close()
    assert [b"".join(pieces) for pieces in recorder.outputs] == outputs
    assert recorder.open == []
