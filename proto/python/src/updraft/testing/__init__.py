# SPDX-License-Identifier: Apache-2.0
"""Run a registered function in a test, exactly as a pool would, without one.

    from updraft import testing

    def test_a_discount_is_taken_off() -> None:
        assert testing.call(discount, [100.0], [10.0]).to_pylist() == [90.0]

Columns are pyarrow arrays, which are checked as those of a caller are, or lists of plain values, which become columns
of the function's own types. The errors are those that a caller gets: `updraft.errors.ProtocolError` for arguments that
the function does not take, `updraft.errors.UserError` for what its code raised or returned. `call` is for functions
that give a value for each row, `table` for those that give rows, `aggregate` for groups, `batches` for functions of any
columns. To call a class several times, and have it constructed once, `load` it.
"""

from updraft.testing.loaded_function import LoadedFunction, aggregate, batches, call, load, table

__all__ = ["LoadedFunction", "aggregate", "batches", "call", "load", "table"]
