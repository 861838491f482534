# SPDX-License-Identifier: Apache-2.0
"""Conversion of columns into types that Spark's JVM reads and that replies can carry.

- Text and binary views become large text and binary. List views become lists. Arrow sends a slice of views with all
  bytes of the whole column, so a large result with views could not be split into replies.
- Dictionaries become their indices, because on stock PySpark the JVM reads the indices.
- Extension types become their storage, because the JVM reads the storage.

Spark reads views since 4.3. With older versions, views stay views, and Spark refuses them as in stock execution.
"""

import pyarrow as pa
import pyspark

from updraft.arrow_layout import ArrowLayout, Text
from updraft.reply_checks import check_reply
from updraft_server.worker.pyspark.adapters import minor_version

_SPARK_READS_VIEWS = minor_version(pyspark.__version__) >= (4, 3)
_LARGE = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


class ReadableColumns:
    """Converter for batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._readable = pa.schema([_field(field) for field in schema], schema.metadata)
        self._layout = ArrowLayout(schema, Text.BYTES)
        self.changes_nothing = bool(self._readable.equals(schema))
        """Whether all types are readable already."""

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the converted batch. Raise UserError for invalid Arrow data before reading any value."""
        check_reply(batch, self._layout)
        columns = [_array(column, field.type) for column, field in zip(batch.columns, self._readable, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._readable)


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(_type(field.type))


def _type(kind: pa.DataType) -> pa.DataType:
    # Spark refuses all other nested types, so their children stay as they are.
    match kind:
        case pa.BaseExtensionType():
            return _type(kind.storage_type)
        case pa.DictionaryType():
            return kind.index_type
        case pa.StructType():
            return pa.struct([_field(member) for member in kind])
        case pa.MapType():
            return pa.map_(_field(kind.key_field), _field(kind.item_field), kind.keys_sorted)
        case pa.ListType():
            return pa.list_(_field(kind.value_field))
        case pa.ListViewType() if _SPARK_READS_VIEWS:
            return pa.list_(_field(kind.value_field))
        case _:
            return _LARGE.get(kind, kind) if _SPARK_READS_VIEWS else kind


def _array(array: pa.Array, kind: pa.DataType) -> pa.Array:
    match array:
        case _ if array.type == kind:
            return array
        # An empty list array may have no offsets.
        case _ if not len(array):
            return pa.nulls(0, kind)
        case pa.ExtensionArray():
            return _array(array.storage, kind)
        case pa.DictionaryArray():
            return array.indices
        case pa.StructArray():
            members = [_array(array.field(index), member.type) for index, member in enumerate(kind)]
            return pa.StructArray.from_arrays(members, fields=list(kind), mask=array.is_null())
        case pa.MapArray():
            key = array.type.key_field.with_nullable(nullable=True)
            entries = array.view(pa.list_(pa.struct([key, array.type.item_field])))
            return _list(entries, pa.list_(pa.struct([kind.key_field, kind.item_field]))).view(kind)
        case pa.ListArray() | pa.ListViewArray():
            return _list(array, kind)
        case _:
            return array.cast(kind)


def _list(array: pa.Array, kind: pa.ListType) -> pa.Array:
    """Copy lists or list views as lists, without items that belong to no list."""
    # Import `pyarrow.compute` only here: most functions return readable types and never need the module.
    import pyarrow.compute as pc

    ends = pc.cumulative_sum_checked(pc.fill_null(pc.list_value_length(array), 0))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, _array(array.flatten(), kind.value_type), type=kind, mask=array.is_null())
