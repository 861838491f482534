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

from updraft.functions.decorators import function
from updraft.functions.definition import ErrorPolicy, Function, Kind
from updraft.functions.failures import DeclarationError
from updraft.functions.hints import Arrow, NumPy, Pandas
from updraft.functions.options import Batching

__all__ = ["Arrow", "Batching", "DeclarationError", "ErrorPolicy", "Function", "Kind", "NumPy", "Pandas", "function"]
