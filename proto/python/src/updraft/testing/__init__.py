# SPDX-License-Identifier: Apache-2.0
"""Test helpers that run a registered function exactly as a pool would, without a pool.

    from updraft import testing

    def test_a_discount_is_taken_off() -> None:
        assert testing.call(discount, [100.0], [10.0]).to_pylist() == [90.0]

Columns are pyarrow arrays, which are checked like a caller's, or lists of plain values, which become columns of the
function's argument types. The errors are those that a caller gets: `updraft.errors.ProtocolError` for arguments that
the function does not accept, `updraft.errors.UserError` if its code raised an exception or returned a wrong result. Use
`call` for functions that return a value for each row, `table` for table functions, `aggregate` for aggregates, and
`batches` for functions of any columns. `load` a class to construct it once and call it several times.
"""

from updraft.testing.loaded_function import LoadedFunction, aggregate, batches, call, load, table

__all__ = ["LoadedFunction", "aggregate", "batches", "call", "load", "table"]
