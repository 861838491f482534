# SPDX-License-Identifier: Apache-2.0
"""Kinds of session functions: how PySpark's worker reads the arguments of each, and how its results become replies.

One table for every PySpark that a pool runs on, with the version that brought a kind; and what 4.0 reads in a
way of its own.
"""

import enum
from typing import NamedTuple


class EvalType(enum.IntEnum):
    """PySpark's PythonEvalType, as far as a pool runs it."""

    BATCHED = 100
    ARROW_BATCHED = 101
    SCALAR_PANDAS = 200
    GROUPED_MAP_PANDAS = 201
    GROUPED_AGG_PANDAS = 202
    WINDOW_AGG_PANDAS = 203
    SCALAR_PANDAS_ITER = 204
    MAP_PANDAS_ITER = 205
    COGROUPED_MAP_PANDAS = 206
    MAP_ARROW_ITER = 207
    GROUPED_MAP_ARROW = 209
    COGROUPED_MAP_ARROW = 210
    GROUPED_MAP_ARROW_ITER = 215
    GROUPED_MAP_PANDAS_ITER = 216
    GROUPED_AGG_PANDAS_ITER = 217
    SCALAR_ARROW = 250
    SCALAR_ARROW_ITER = 251
    GROUPED_AGG_ARROW = 252
    WINDOW_AGG_ARROW = 253
    GROUPED_AGG_ARROW_ITER = 254
    TABLE = 300
    ARROW_TABLE = 301
    ARROW_UDTF = 302


class Reads(enum.Enum):
    """What PySpark's worker reads after the init message."""

    PICKLED_LISTS = "lengths and pickled lists of rows"
    BATCHES = "one Arrow stream"
    GROUPS = "a count of 1 and an Arrow stream for each group"
    COGROUPS = "a count of 2 and two Arrow streams for each group"
    GROUP_BATCHES = "one Arrow stream with a batch for each group"


class Answers(enum.Enum):
    """What the replies are."""

    FREELY = "any number of batches"
    PER_ROW = "a reply for each request, with a row for each of its rows"
    PER_GROUP = "a reply for each request, with a row for each group that ends in it"
    OUTPUTS = "the outputs of the rows, each any number of rows, in any number of replies"


class Kind(NamedTuple):
    """How a function is run."""

    reads: Reads
    answers: Answers
    since: tuple[int, int] = (4, 0)


KINDS = {
    EvalType.BATCHED: Kind(Reads.PICKLED_LISTS, Answers.PER_ROW),
    EvalType.ARROW_BATCHED: Kind(Reads.BATCHES, Answers.PER_ROW),
    EvalType.SCALAR_PANDAS: Kind(Reads.BATCHES, Answers.PER_ROW),
    EvalType.SCALAR_PANDAS_ITER: Kind(Reads.BATCHES, Answers.PER_ROW),
    EvalType.SCALAR_ARROW: Kind(Reads.BATCHES, Answers.PER_ROW, (4, 1)),
    EvalType.SCALAR_ARROW_ITER: Kind(Reads.BATCHES, Answers.PER_ROW, (4, 1)),
    EvalType.MAP_PANDAS_ITER: Kind(Reads.BATCHES, Answers.FREELY),
    EvalType.MAP_ARROW_ITER: Kind(Reads.BATCHES, Answers.FREELY),
    EvalType.GROUPED_MAP_PANDAS: Kind(Reads.GROUPS, Answers.FREELY),
    EvalType.GROUPED_MAP_PANDAS_ITER: Kind(Reads.GROUPS, Answers.FREELY, (4, 1)),
    EvalType.GROUPED_MAP_ARROW: Kind(Reads.GROUPS, Answers.FREELY),
    EvalType.GROUPED_MAP_ARROW_ITER: Kind(Reads.GROUPS, Answers.FREELY, (4, 1)),
    EvalType.COGROUPED_MAP_PANDAS: Kind(Reads.COGROUPS, Answers.FREELY),
    EvalType.COGROUPED_MAP_ARROW: Kind(Reads.COGROUPS, Answers.FREELY),
    EvalType.GROUPED_AGG_PANDAS: Kind(Reads.GROUPS, Answers.PER_GROUP),
    EvalType.GROUPED_AGG_PANDAS_ITER: Kind(Reads.GROUPS, Answers.PER_GROUP, (4, 2)),
    EvalType.GROUPED_AGG_ARROW: Kind(Reads.GROUPS, Answers.PER_GROUP, (4, 1)),
    EvalType.GROUPED_AGG_ARROW_ITER: Kind(Reads.GROUPS, Answers.PER_GROUP, (4, 2)),
    EvalType.WINDOW_AGG_PANDAS: Kind(Reads.GROUPS, Answers.PER_ROW),
    EvalType.WINDOW_AGG_ARROW: Kind(Reads.GROUPS, Answers.PER_ROW, (4, 1)),
    EvalType.TABLE: Kind(Reads.PICKLED_LISTS, Answers.OUTPUTS),
    EvalType.ARROW_TABLE: Kind(Reads.BATCHES, Answers.OUTPUTS),
    EvalType.ARROW_UDTF: Kind(Reads.BATCHES, Answers.OUTPUTS, (4, 1)),
}

_GROUPS_ARE_BATCHES_IN_4_0 = (
    EvalType.GROUPED_MAP_PANDAS,
    EvalType.GROUPED_MAP_ARROW,
    EvalType.GROUPED_AGG_PANDAS,
    EvalType.WINDOW_AGG_PANDAS,
)


def kinds_of(version: tuple[int, int]) -> dict[EvalType, Kind]:
    """The kinds that a PySpark has, as it reads them."""
    kinds = {eval_type: kind for eval_type, kind in KINDS.items() if kind.since <= version}
    if version == (4, 0):
        for eval_type in _GROUPS_ARE_BATCHES_IN_4_0:
            kinds[eval_type] = kinds[eval_type]._replace(reads=Reads.GROUP_BATCHES)
    return kinds
