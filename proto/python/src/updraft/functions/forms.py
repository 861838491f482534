# SPDX-License-Identifier: Apache-2.0
"""Forms in which a function takes its arguments: one value at a time, or a whole column of a batch."""

import enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

_T = TypeVar("_T")


class Form(enum.Enum):
    """Form of the arguments and the result of the author's code."""

    ROWS = "plain values, one row a call"
    ARROW = "pyarrow.Array"
    PANDAS = "pandas.Series"
    NUMPY = "numpy.ndarray"
    RECORD_BATCH = "pyarrow.RecordBatch, of any columns"


if TYPE_CHECKING:
    from typing_extensions import TypeAliasType

    # Type checkers see a column as Any, so neither pyarrow nor pandas needs stubs.
    Arrow = TypeAliasType("Arrow", Any, type_params=(_T,))
    Pandas = TypeAliasType("Pandas", Any, type_params=(_T,))
    NumPy = TypeAliasType("NumPy", Any, type_params=(_T,))
else:

    class Arrow(Generic[_T]):
        """Hint `Arrow[T]`: a pyarrow.Array with the values of one batch, each of them a T."""

    class Pandas(Generic[_T]):
        """Hint `Pandas[T]`: a pandas.Series with the values of one batch.

        A nullable int or bool has pandas' nullable type. A list is an ndarray, in which a null among floats is NaN. In
        results, NaN means null wherever the type allows one, except in dicts.
        """

    class NumPy(Generic[_T]):
        """Hint `NumPy[T]`: a one-dimensional numpy.ndarray with the values of one batch.

        NumPy has no null: a null float becomes NaN, also inside a list, and other nullable numbers are refused. In
        results, NaN means null wherever the type allows one, except in dicts.
        """


FORMS: dict[Any, Form] = {Arrow: Form.ARROW, Pandas: Form.PANDAS, NumPy: Form.NUMPY}
