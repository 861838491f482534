# SPDX-License-Identifier: Apache-2.0
"""Kinds of session functions: how PySpark's worker reads the arguments of each kind, and how results become replies.

One table serves every PySpark version that a pool can run. `kinds_of` applies the differences of 4.0 and earlier.
"""

import enum
from typing import NamedTuple

from pyspark.rdd import PythonEvalType


class Reads(enum.Enum):
    """Input of PySpark's worker after the init message."""

    PICKLED_LISTS = "lengths and pickled lists of rows"
    BATCHES = "one Arrow stream"
    GROUPS = "a count of 1 and an Arrow stream for each group"
    COGROUPS = "a count of 2 and two Arrow streams for each group"
    GROUP_BATCHES = "one Arrow stream with a batch for each group"


class ReplyForm(enum.Enum):
    """Form of the replies."""

    FREELY = "any number of batches"
    PER_ROW = "a reply for each request, with a row for each of its rows"
    PER_GROUP = "a reply for each request, with a row for each group that ends in it"
    OUTPUTS = "the outputs of the rows, each any number of rows, in any number of replies"


class Kind(NamedTuple):
    """Kind of function, with the forms of its input and its replies."""

    name: str
    """Name of the constant in PySpark's PythonEvalType."""
    reads: Reads
    answers: ReplyForm


KINDS = (
    Kind("SQL_BATCHED_UDF", Reads.PICKLED_LISTS, ReplyForm.PER_ROW),
    Kind("SQL_ARROW_BATCHED_UDF", Reads.BATCHES, ReplyForm.PER_ROW),
    Kind("SQL_SCALAR_PANDAS_UDF", Reads.BATCHES, ReplyForm.PER_ROW),
    Kind("SQL_SCALAR_PANDAS_ITER_UDF", Reads.BATCHES, ReplyForm.PER_ROW),
    Kind("SQL_SCALAR_ARROW_UDF", Reads.BATCHES, ReplyForm.PER_ROW),
    Kind("SQL_SCALAR_ARROW_ITER_UDF", Reads.BATCHES, ReplyForm.PER_ROW),
    Kind("SQL_MAP_PANDAS_ITER_UDF", Reads.BATCHES, ReplyForm.FREELY),
    Kind("SQL_MAP_ARROW_ITER_UDF", Reads.BATCHES, ReplyForm.FREELY),
    Kind("SQL_GROUPED_MAP_PANDAS_UDF", Reads.GROUPS, ReplyForm.FREELY),
    Kind("SQL_GROUPED_MAP_PANDAS_ITER_UDF", Reads.GROUPS, ReplyForm.FREELY),
    Kind("SQL_GROUPED_MAP_ARROW_UDF", Reads.GROUPS, ReplyForm.FREELY),
    Kind("SQL_GROUPED_MAP_ARROW_ITER_UDF", Reads.GROUPS, ReplyForm.FREELY),
    Kind("SQL_COGROUPED_MAP_PANDAS_UDF", Reads.COGROUPS, ReplyForm.FREELY),
    Kind("SQL_COGROUPED_MAP_ARROW_UDF", Reads.COGROUPS, ReplyForm.FREELY),
    Kind("SQL_GROUPED_AGG_PANDAS_UDF", Reads.GROUPS, ReplyForm.PER_GROUP),
    Kind("SQL_GROUPED_AGG_PANDAS_ITER_UDF", Reads.GROUPS, ReplyForm.PER_GROUP),
    Kind("SQL_GROUPED_AGG_ARROW_UDF", Reads.GROUPS, ReplyForm.PER_GROUP),
    Kind("SQL_GROUPED_AGG_ARROW_ITER_UDF", Reads.GROUPS, ReplyForm.PER_GROUP),
    Kind("SQL_WINDOW_AGG_PANDAS_UDF", Reads.GROUPS, ReplyForm.PER_ROW),
    Kind("SQL_WINDOW_AGG_ARROW_UDF", Reads.GROUPS, ReplyForm.PER_ROW),
    Kind("SQL_TABLE_UDF", Reads.PICKLED_LISTS, ReplyForm.OUTPUTS),
    Kind("SQL_ARROW_TABLE_UDF", Reads.BATCHES, ReplyForm.OUTPUTS),
    Kind("SQL_ARROW_UDTF", Reads.BATCHES, ReplyForm.OUTPUTS),
)

_GROUPS_ARE_BATCHES_UNTIL_4_0 = (
    "SQL_GROUPED_MAP_PANDAS_UDF",
    "SQL_GROUPED_MAP_ARROW_UDF",
    "SQL_GROUPED_AGG_PANDAS_UDF",
    "SQL_WINDOW_AGG_PANDAS_UDF",
)


def kinds_of(version: tuple[int, int]) -> dict[int, Kind]:
    """Return the kinds that the installed PySpark has, by eval type; `version` is its version."""
    kinds = {getattr(PythonEvalType, kind.name): kind for kind in KINDS if hasattr(PythonEvalType, kind.name)}
    if version <= (4, 0):
        for eval_type, kind in kinds.items():
            if kind.name in _GROUPS_ARE_BATCHES_UNTIL_4_0:
                kinds[eval_type] = kind._replace(reads=Reads.GROUP_BATCHES)
    return kinds
