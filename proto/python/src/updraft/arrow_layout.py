# SPDX-License-Identifier: Apache-2.0
"""Validation of everything in a batch that memory safety depends on: offsets, lengths, indices, views.

`RecordBatch.validate(full=True)` also checks that text is valid UTF-8. But Spark stores text without checking its
encoding, and Spark's own workers and files pass such text on. So this module makes the check of the encoding optional.
Without the check of the encoding, this module validates columns of text as binary columns over the same buffers, in a
quarter of the time.
"""

import enum

import pyarrow as pa

_BYTES_OF_TEXT = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}


class Text(enum.Enum):
    """Contents allowed in columns of text."""

    UTF_8 = "valid UTF-8"
    BYTES = "any bytes, as in Spark"


class ArrowLayout:
    """Validator for batches of one schema."""

    def __init__(self, schema: pa.Schema, text: Text) -> None:
        row = pa.struct(list(schema))
        as_bytes = _as_bytes(row)
        self._as_bytes = as_bytes if text is Text.BYTES and _has_text(row) else None

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise pyarrow.ArrowInvalid if the batch points outside of its buffers, or contains forbidden text."""
        if self._as_bytes is None:
            batch.validate(full=True)
            return
        # Validate the original types first, because `view` reads null bitmaps and drops the offset of run-end-encoded
        # columns.
        batch.validate()
        batch.to_struct_array().view(self._as_bytes).validate(full=True)


def _has_text(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        # The lookup below would fail, because extension types written in Python are not hashable.
        return _has_text(data_type.storage_type)
    return data_type in _BYTES_OF_TEXT or any(map(_has_text, _below(data_type)))


def _below(data_type: pa.DataType) -> list[pa.DataType]:
    if isinstance(data_type, pa.DictionaryType | pa.RunEndEncodedType):
        return [data_type.value_type]
    return [data_type.field(index).type for index in range(data_type.num_fields)]


def _as_bytes(data_type: pa.DataType) -> pa.DataType:
    """Return the type with binary in place of text. All fields are nullable: validation accepts nulls anywhere."""
    match data_type:
        case pa.BaseExtensionType():
            return _as_bytes(data_type.storage_type)
        case pa.DictionaryType():
            return pa.dictionary(data_type.index_type, _as_bytes(data_type.value_type), data_type.ordered)
        case pa.RunEndEncodedType():
            return pa.run_end_encoded(data_type.run_end_type, _as_bytes(data_type.value_type))
        case pa.MapType():
            key = data_type.key_field
            return pa.map_(key.with_type(_as_bytes(key.type)), _field_as_bytes(data_type.item_field))
        case pa.StructType():
            return pa.struct([_field_as_bytes(field) for field in data_type])
        case pa.FixedSizeListType():
            return pa.list_(_field_as_bytes(data_type.value_field), data_type.list_size)
        case pa.ListType():
            return pa.list_(_field_as_bytes(data_type.value_field))
        case pa.LargeListType():
            return pa.large_list(_field_as_bytes(data_type.value_field))
        case pa.ListViewType():
            return pa.list_view(_field_as_bytes(data_type.value_field))
        case pa.LargeListViewType():
            return pa.large_list_view(_field_as_bytes(data_type.value_field))
        case pa.UnionType():
            return pa.union([_field_as_bytes(field) for field in data_type], data_type.mode, data_type.type_codes)
        case _:
            return _BYTES_OF_TEXT.get(data_type, data_type)


def _field_as_bytes(field: pa.Field) -> pa.Field:
    return field.with_type(_as_bytes(field.type)).with_nullable(nullable=True)
