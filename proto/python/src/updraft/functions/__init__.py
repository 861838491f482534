# SPDX-License-Identifier: Apache-2.0
"""API for authors of registered functions; `from updraft import function` gives the same object.

    @function                                            plain values, one row per call
    def discount(price: float, percent: float = 10.0) -> float: ...

    @function                                            columns: Arrow, Pandas or NumPy
    def upper(text: Arrow[str]) -> Arrow[str]: ...

    @function                                            a class, constructed once in a worker
    class Sentiment:
        def __init__(self) -> None: ...
        def __call__(self, text: Arrow[str]) -> Arrow[float]: ...

The package needs only pyarrow. `updraft.testing` runs a function as a pool does.
"""

from updraft.functions.batching import Batching
from updraft.functions.declaration_error import DeclarationError
from updraft.functions.decorators import function
from updraft.functions.definition import ErrorPolicy, Function, Kind
from updraft.functions.forms import Arrow, NumPy, Pandas

__all__ = ["Arrow", "Batching", "DeclarationError", "ErrorPolicy", "Function", "Kind", "NumPy", "Pandas", "function"]
