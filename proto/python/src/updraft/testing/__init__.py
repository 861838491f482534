# SPDX-License-Identifier: Apache-2.0
"""Test helpers that run a registered function exactly as a pool would, without a pool.

    from updraft import testing

    def test_a_discount_is_taken_off() -> None:
        assert testing.call(discount, [100.0], [10.0]).to_pylist() == [90.0]

Pass columns as pyarrow arrays or as lists of plain values. Arrays are checked as if a caller had sent them. Lists
become columns of the function's argument types. The errors are the same as for a caller: `updraft.errors.ProtocolError`
for arguments that the function does not accept, `updraft.errors.UserError` if the function's code raised an exception
or returned a wrong result. Use `call` for functions that return a value for each row, `table` for table functions,
`aggregate` for aggregates, and `batches` for functions of any columns. `load` a class to construct it once and call it
several times.
"""

from updraft.testing.loaded_function import LoadedFunction, aggregate, batches, call, load, table

__all__ = ["LoadedFunction", "aggregate", "batches", "call", "load", "table"]
