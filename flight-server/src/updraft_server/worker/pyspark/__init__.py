# SPDX-License-Identifier: Apache-2.0
"""Session functions: code that a Spark session ships, run by PySpark's own worker code exactly as on stock PySpark.

`runner` checks an exchange and runs PySpark's worker for it. `adapters` calls the worker of each PySpark version.
`init_message` writes the message that PySpark's worker reads first. `trailer` reads the message that this worker writes
last. `streams` and `pickled_stream` replace the worker's data streams. `plain_columns` and `struct_columns` speed up
conversions between Arrow, pandas and structs. Other packages import only `runner`, and only in pools that run session
functions, because this package imports PySpark.
"""
