# SPDX-License-Identifier: Apache-2.0
"""Table functions as users write them: the output of each shows the arguments of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql import types as T
from pyspark.sql.functions import AnalyzeArgument, AnalyzeResult, PartitioningColumn, SkipRestOfInputTableException


class Repeat:
    """Table function that gives as many rows as the number says."""

    def eval(self, number: int) -> Iterator[tuple[int, str]]:
        for index in range(number % 4):
            yield number, f"{number}.{index}"


class Count:
    def __init__(self) -> None:
        self._rows = 0

    def eval(self, *_: Any) -> None:
        self._rows += 1

    def terminate(self) -> Iterator[tuple[int, str]]:
        yield self._rows, "rows"


class Echo:
    def eval(self, row: Row) -> Iterator[tuple[int, str]]:
        yield row["id"], repr(row)


class EchoAndEnd(Echo):
    def terminate(self) -> Iterator[tuple[int, str]]:
        yield -1, "end"


class SkipAfterThree:
    def __init__(self) -> None:
        self._rows = 0

    def eval(self, row: Any) -> Iterator[tuple[int, str]]:
        self._rows += 1
        if self._rows > 3:
            raise SkipRestOfInputTableException("three are enough")
        yield self._rows, repr(row)

    def terminate(self) -> Iterator[tuple[int, str]]:
        yield -self._rows, "skipped"


class NoArguments:
    def eval(self) -> Iterator[tuple[int, str | None]]:
        yield 1, "one"
        yield 2, None


class Named:
    def eval(self, number: int, factor: int = 2, **rest: Any) -> Iterator[tuple[int, str]]:
        yield number * factor, repr(sorted(rest.items()))


class Nulls:
    def eval(self, number: int) -> Iterator[tuple[int | None, str | None] | None]:
        yield None, None
        yield number, None


class NothingAtAll:
    def eval(self, number: int) -> None:
        return None


class Many:
    def eval(self, number: int) -> Iterator[tuple[int, str]]:
        for index in range(30_000):
            yield index, "x" * (index % 50)


class Wide:
    """Table function with more bytes in one output than a reply may have."""

    def eval(self, number: int) -> Iterator[tuple[int, str]]:
        for index in range(80):
            yield index, chr(97 + index % 26) * (1 << 20)


class Analyzed:
    """Table function whose schema, partitioning and constructor argument come from `analyze`."""

    def __init__(self, analyzed: Any) -> None:
        self._label = analyzed.label
        self._total = 0

    @staticmethod
    def analyze(table: AnalyzeArgument, label: AnalyzeArgument) -> AnalyzeResult:
        return _Labelled(
            schema=T.StructType().add("label", T.StringType()).add("total", T.LongType()),
            partitionBy=[PartitioningColumn("k")],
            label=label.value,
        )

    def eval(self, row: Row, label: str) -> None:
        self._total += row["id"]

    def terminate(self) -> Iterator[tuple[str, int]]:
        yield self._label, self._total


@dataclass
class _Labelled(AnalyzeResult):  # type: ignore[misc]
    label: str = ""


class Sparse:
    """Table function that gives an empty table, nothing, or two batches for a batch, by its first number."""

    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        part = pa.table({"number": batch.column("id"), "text": batch.column("s")})
        match batch.column("id")[0].as_py() % 3:
            case 0:
                yield part.slice(0, 0)
            case 2:
                yield pa.concat_tables([part, part])


class AddOne:
    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        yield pa.table({"number": pc.add(batch.column("id"), 1), "text": batch.column("s")})


class BatchSizes:
    def __init__(self) -> None:
        self._rows = 0

    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        self._rows += batch.num_rows
        yield pa.record_batch({"number": [batch.num_rows], "text": [str(batch.schema.names)]})

    def terminate(self) -> Iterator[pa.Table]:
        yield pa.table({"number": [self._rows], "text": ["end"]})


class OfScalars:
    def eval(self, number: pa.Array, text: pa.Array) -> Iterator[pa.Table]:
        yield pa.table({"number": number, "text": text})


class ManyBatches:
    def eval(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for index in range(5_000):
            yield pa.record_batch({"number": [index], "text": ["t"]})


class LateError:
    def eval(self, number: int) -> Iterator[tuple[int, str]]:
        if number == 30:
            raise ValueError("the thirtieth")
        yield number, ""
