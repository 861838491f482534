# SPDX-License-Identifier: Apache-2.0
"""Session functions: what a Spark session ships, run by PySpark's own worker code to mean exactly what it means there.

`runner` checks and drives; `init_message` writes what PySpark's worker reads first; `arrow_stream` and
`pickled_stream` stand where its data streams would be; `trailer` reads what it writes last; `tracebacks` catches what
it reports; `plain_numbers` and `struct_columns` shorten its ways between Arrow, pandas and structs. `pyspark_4_0` to
`pyspark_4_3` know how a version's worker is called. Only `runner` is imported from outside, and only by a pool that
runs session functions: the package imports PySpark.
"""
