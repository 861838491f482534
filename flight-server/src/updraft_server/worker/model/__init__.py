# SPDX-License-Identifier: Apache-2.0
"""Batched functions, which process the rows of several exchanges in one batch. Each replica is a separate process.

`row_queue` decides which rows form the next batch. `process` is the main loop of a model process. `connection` is the
model process's end of a worker's socket, and `client` is the worker's end.
"""
