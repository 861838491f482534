# SPDX-License-Identifier: Apache-2.0
"""Dictionary of a stream of batches, and the memory that columns decoded with the dictionary take."""

import pyarrow as pa
from pyarrow import types as kinds

_BITS_PER_BYTE = 8
_OFFSET_BYTES = 8
_VIEW_BYTES = 16
_VIEW = pa.binary(_VIEW_BYTES)
_VIEW_NUMBERS = pa.list_(pa.int32(), _VIEW_BYTES // 4)


def is_decoded(kind: pa.DataType) -> bool:
    """Return whether dictionaries of this type are decoded: their decoded size must be computable beforehand."""
    is_other = isinstance(kind, pa.BaseExtensionType | pa.DictionaryType | pa.RunEndEncodedType)
    return not is_other and not kinds.is_nested(kind)


class Dictionary:
    """Received values that the indexes of one or more columns refer to."""

    def __init__(self, kind: pa.DataType) -> None:
        """Create an empty dictionary; `is_decoded` must allow the type."""
        self._kind = kind
        self._parts = [pa.array([], kind)]
        self._lengths: pa.Array | None = None
        self.held_bytes = 0
        """Memory of the values, in bytes."""

    def add(self, values: pa.RecordBatch, held_bytes: int, *, is_delta: bool) -> None:
        """Replace the dictionary's values by the only column of `values`; for a delta, append the column instead."""
        if not is_delta:
            self._parts, self.held_bytes = [], 0
        self._parts.append(values.column(0))
        self._lengths = None
        self.held_bytes += held_bytes

    def decoded_bytes(self, indexes: pa.Array) -> int:
        """Return the bytes that these indexes take when decoded; raise pyarrow.ArrowIndexError for an invalid index."""
        if kinds.is_null(self._kind):
            return 0
        if not self._is_variable:
            return len(indexes) * int(self._kind.bit_width) // _BITS_PER_BYTE
        # Import this late, because the import is slow and few clients send dictionaries.
        import pyarrow.compute as pc

        texts_bytes = pc.sum(self._text_lengths().take(indexes)).as_py() or 0
        return int(texts_bytes) + len(indexes) * (_VIEW_BYTES if self._has_views else _OFFSET_BYTES)

    def decoded(self, indexes: pa.Array) -> pa.Array:
        """Return each index's value, and null for a null index; raise pyarrow.ArrowIndexError for an invalid index."""
        values = self._values()
        if not self._has_views:
            return values.take(indexes)
        # Arrow's `take` does not support views, so take the views as plain bytes. The result still refers to the same
        # texts.
        validity, views, *texts = values.buffers()
        gathered = pa.Array.from_buffers(_VIEW, len(values), [validity, views]).take(indexes)
        return pa.Array.from_buffers(self._kind, len(gathered), [*gathered.buffers(), *texts])

    @property
    def _has_views(self) -> bool:
        return bool(kinds.is_string_view(self._kind) or kinds.is_binary_view(self._kind))

    @property
    def _is_variable(self) -> bool:
        is_text = kinds.is_string(self._kind) or kinds.is_large_string(self._kind)
        return bool(self._has_views or is_text or kinds.is_binary(self._kind) or kinds.is_large_binary(self._kind))

    def _values(self) -> pa.Array:
        if len(self._parts) > 1:
            self._parts = [pa.concat_arrays(self._parts)]
        return self._parts[0]

    def _text_lengths(self) -> pa.Array:
        if self._lengths is None:
            import pyarrow.compute as pc

            values = self._values()
            if self._has_views:
                validity, views = values.buffers()[:2]
                numbers = pa.Array.from_buffers(pa.int32(), len(values) * _VIEW_NUMBERS.list_size, [None, views])
                # The first number of a view is the length of its text.
                as_lists = pa.Array.from_buffers(_VIEW_NUMBERS, len(values), [validity], children=[numbers])
                self._lengths = pc.list_element(as_lists, 0)
            else:
                self._lengths = pc.binary_length(values)
        return self._lengths
