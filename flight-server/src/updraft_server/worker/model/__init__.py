# SPDX-License-Identifier: Apache-2.0
"""Functions that get batches of rows from several exchanges. Each replica is a separate process.

`row_queue` is the policy, without any transport. `process` is the loop of a model process. `connection` is the model
process's end of a worker's socket, and `client` is the worker's end.
"""
