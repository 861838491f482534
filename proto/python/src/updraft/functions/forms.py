# SPDX-License-Identifier: Apache-2.0
"""How a function takes its arguments: a value at a time, or a whole column of a batch."""

import enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

_T = TypeVar("_T")


class Form(enum.Enum):
    """What the author's code gets for an argument, and gives as its result."""

    ROWS = "plain values, one row a call"
    ARROW = "pyarrow.Array"
    PANDAS = "pandas.Series"
    NUMPY = "numpy.ndarray"
    RECORD_BATCH = "pyarrow.RecordBatch, of any columns"


if TYPE_CHECKING:
    from typing_extensions import TypeAliasType

    # A column is of any type to a checker: neither pyarrow nor pandas need have stubs.
    Arrow = TypeAliasType("Arrow", Any, type_params=(_T,))
    Pandas = TypeAliasType("Pandas", Any, type_params=(_T,))
    NumPy = TypeAliasType("NumPy", Any, type_params=(_T,))
else:

    class Arrow(Generic[_T]):
        """`Arrow[T]` in a hint: a pyarrow.Array of the values of one batch, each of which is a T."""

    class Pandas(Generic[_T]):
        """`Pandas[T]` in a hint: a pandas.Series of the values of one batch.

        A nullable int or bool has pandas' nullable type. A list is an ndarray, in which a null among floats is NaN. In
        results NaN means null wherever the type allows one, except in dicts.
        """

    class NumPy(Generic[_T]):
        """`NumPy[T]` in a hint: a one-dimensional numpy.ndarray of the values of one batch.

        NumPy has no null: a nullable float is NaN, in a list too, and other nullable numbers are refused. In results
        NaN means null wherever the type allows one, except in dicts.
        """


FORMS: dict[Any, Form] = {Arrow: Form.ARROW, Pandas: Form.PANDAS, NumPy: Form.NUMPY}
