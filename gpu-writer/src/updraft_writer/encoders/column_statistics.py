# SPDX-License-Identifier: Apache-2.0
"""Statistics of a Parquet file's columns, from its footer, for the file's receipt.

A table format uses these statistics instead of reading the rows again, so the statistics must claim no more than the
footer does. A column has no bounds here if any of its chunks contains values but no bounds, or contains bounds that
readers must not use (because of NaN).
"""

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from updraft.v1.write_pb2 import Bound, ColumnStatistics
from updraft_writer.encoders.parquet_footer import Skipping

# Longest bound. Longer strings and binaries are cut. Table formats store far shorter prefixes.
MAX_BOUND_BYTES = 256
# Maximum size of all statistics of a file together, because one message carries all of them.
MAX_STATISTICS_BYTES = 1 << 20
_MICROSECONDS = {"milliseconds": 1000, "microseconds": 1}
_LAST_CODE_POINT, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)
_INT64 = range(-(1 << 63), 1 << 63)

_Value = bool | int | float | bytes


def column_statistics(
    metadata: Any, unusable: Mapping[tuple[int, int], Skipping], *, rebased: bool
) -> tuple[ColumnStatistics, ...]:
    """Return the statistics of the leaf columns, in the file's order.

    `metadata` is pyarrow's FileMetaData, read before `unusable` parts were removed from the footer. `rebased` means
    that the file stores dates and timestamps in the hybrid calendar. Date and timestamp columns then have no bounds,
    because the bounds would be wrong in a table. The result omits columns without statistics, and columns beyond
    MAX_STATISTICS_BYTES.
    """
    found: list[ColumnStatistics] = []
    left_bytes = MAX_STATISTICS_BYTES
    for leaf in range(metadata.num_columns):
        chunks = [metadata.row_group(group).column(leaf) for group in range(metadata.num_row_groups)]
        usable = [Skipping.BOUNDS not in unusable.get((group, leaf), Skipping(0)) for group in range(len(chunks))]
        column = metadata.schema.column(leaf)
        statistics = _of_column(column.path, _Kind.of(column, rebased=rebased), chunks, usable)
        if statistics is not None:
            left_bytes -= statistics.ByteSize()
            if left_bytes < 0:
                break
            found.append(statistics)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Type of a column's bounds: the field of Bound that stores them, and the factor for stored values."""

    field: str | None
    factor: int = 1
    is_text: bool = False

    @classmethod
    def of(cls, column: Any, *, rebased: bool) -> "_Kind":
        """Return the kind of a leaf. The kind's field is None if the leaf has no bounds."""
        physical, logical = column.physical_type, json.loads(column.logical_type.to_json())
        name = logical["Type"]
        if name == "Decimal":
            return cls("decimal")
        if name in ("Date", "Timestamp") and rebased:
            return cls(None)
        if name in ("Timestamp", "Time"):
            factor = _MICROSECONDS.get(logical["timeUnit"])
            return cls("integer", factor) if factor else cls(None)
        if name == "Float16" or (name == "Int" and not logical["isSigned"]):
            return cls(None)
        field = {
            "BOOLEAN": "boolean",
            "INT32": "integer",
            "INT64": "integer",
            "FLOAT": "floating",
            "DOUBLE": "floating",
            "BYTE_ARRAY": "binary",
            "FIXED_LEN_BYTE_ARRAY": "binary",
        }.get(physical)
        return cls(field, is_text=name == "String")

    def value(self, stored: Any) -> _Value:
        """Convert a stored value to a value that compares like the column's values."""
        if self.field == "decimal":
            return int.from_bytes(stored, "big", signed=True) if isinstance(stored, bytes) else int(stored)
        return stored * self.factor if self.field == "integer" else stored  # type: ignore[no-any-return]

    def minimum(self, value: Any) -> Bound | None:
        """Return a bound that is at most `value`; None if no short bound exists."""
        if self.field != "binary" or len(value) <= MAX_BOUND_BYTES:
            return self._bound(value)
        prefix = self._prefix(value)
        return None if prefix is None else Bound(binary=prefix, exact=False)

    def maximum(self, value: Any) -> Bound | None:
        """Return a bound that is at least `value`; None if no short bound exists."""
        if self.field != "binary" or len(value) <= MAX_BOUND_BYTES:
            return self._bound(value)
        prefix = self._prefix(value)
        if prefix is None:
            return None
        above = _text_above(prefix.decode()) if self.is_text else _bytes_above(prefix)
        return None if above is None else Bound(binary=above, exact=False)

    def _bound(self, value: Any) -> Bound | None:
        if self.field == "decimal":
            value = value.to_bytes(max(value, ~value).bit_length() // 8 + 1, "big", signed=True)
        elif self.field == "integer" and value not in _INT64:
            return None
        return Bound(**{str(self.field): value, "exact": True})

    def _prefix(self, value: bytes) -> bytes | None:
        """Return the beginning of a value, in whole characters; None for a string that is not UTF-8."""
        prefix = value[:MAX_BOUND_BYTES]
        if not self.is_text:
            return prefix
        try:
            # If the cut leaves only a part of the last character, the decoder drops that part.
            return prefix[: codecs.utf_8_decode(prefix)[1]]
        except UnicodeDecodeError:
            return None


def _of_column(path: str, kind: _Kind, chunks: Iterable[Any], usable: Iterable[bool]) -> ColumnStatistics | None:
    nulls, bounds = 0, []
    has_bounds = kind.field is not None
    for chunk, is_usable in zip(chunks, usable, strict=True):
        if not chunk.num_values:
            continue
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            return None
        nulls += statistics.null_count
        if statistics.null_count == chunk.num_values:
            continue
        has_bounds &= is_usable and statistics.has_min_max
        if has_bounds:
            bounds.append((kind.value(statistics.min_raw), kind.value(statistics.max_raw)))
    found = ColumnStatistics(path=path, nulls=nulls)
    if has_bounds and bounds:
        least, most = zip(*bounds, strict=True)
        if (minimum := kind.minimum(min(least))) is not None:
            found.minimum.CopyFrom(minimum)
        if (maximum := kind.maximum(max(most))) is not None:
            found.maximum.CopyFrom(maximum)
    return found


def _text_above(prefix: str) -> bytes | None:
    """Return the shortest text that is above all texts with this prefix; None if there is no such text."""
    for end, character in _from_the_end(prefix):
        code = ord(character) + 1
        if code <= _LAST_CODE_POINT:
            above = chr(_SURROGATES.stop if code in _SURROGATES else code)
            return (prefix[:end] + above).encode()
    return None


def _bytes_above(prefix: bytes) -> bytes | None:
    for end, byte in _from_the_end(prefix):
        if byte < 0xFF:
            return prefix[:end] + bytes([byte + 1])
    return None


def _from_the_end(prefix: Any) -> Iterator[tuple[int, Any]]:
    return ((index, prefix[index]) for index in reversed(range(len(prefix))))
