# SPDX-License-Identifier: Apache-2.0
"""Session functions: code that a Spark session ships, run by PySpark's own worker code exactly as on stock PySpark.

`runner` checks and drives; `init_message` writes what PySpark's worker reads first; `streams` and `pickled_stream`
replace its data streams; `trailer` reads what it writes last; `plain_numbers` and `struct_columns` speed up its
conversions between Arrow, pandas and structs. `adapters` calls the worker of each version. Only `runner` is imported
from outside, and only by pools that run session functions: the package imports PySpark.
"""
