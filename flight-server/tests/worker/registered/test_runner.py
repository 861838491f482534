# SPDX-License-Identifier: Apache-2.0
"""Row numbers of a table function's results, if nothing else tells which row they belong to."""

import pyarrow as pa
import pytest

from updraft.errors import LimitError
from updraft_server.worker.registered import runner
from updraft_server.worker.registered.runner import NumberedResults

WORD = pa.schema([pa.field("word", pa.string(), nullable=False)])
WORDS = pa.schema([*WORD, pa.field("count", pa.int64(), nullable=False)])


def words(*texts: str) -> pa.RecordBatch:
    return pa.record_batch([pa.array(texts, pa.string()), pa.array([1] * len(texts))], schema=WORDS)


@pytest.mark.parametrize(
    ("ends", "rows"),
    [
        ([[3]], [0, 0, 0]),
        ([[1, 1, 1, 3]], [0, 3, 3]),
        # A row without an end continues in the next reply.
        ([[], [3]], [0, 0, 0, 0, 0, 0]),
        ([[1], [2]], [0, 1, 1, 1, 1, 2]),
        ([[], [0, 3]], [0, 0, 0, 1, 1, 1]),
        ([[3], [3, 3]], [0, 0, 0, 1, 1, 1]),
    ],
)
def test_rows_are_counted_over_all_replies(ends: list[list[int]], rows: list[int]) -> None:
    table = NumberedResults(WORDS)
    replies = [table.reply(words("a", "b", "c"), row_ends) for row_ends in ends]
    assert [number for reply in replies for number in reply.column(0).to_pylist()] == rows
    assert replies[0].column(1).to_pylist()[0] == {"word": "a", "count": 1}


def test_rows_beyond_what_their_numbers_can_say_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MOST_ROWS", 3)
    table = NumberedResults(WORD)
    batch = pa.record_batch([pa.array(["a", "b"])], schema=WORD)
    table.reply(batch, [1, 2])
    with pytest.raises(LimitError, match="more than 3 rows"):
        table.reply(batch, [1, 2])


def test_a_reply_without_results_has_none_with_numbers_either() -> None:
    reply = NumberedResults(WORDS).reply(words(), [0, 0])
    assert (reply.num_rows, reply.schema.field(0).type) == (0, pa.int32())
