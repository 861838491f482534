# SPDX-License-Identifier: Apache-2.0
"""Worker process: runs one exchange at a time, from frames to a function and back.

`process` is the loop, `channel` the blocking socket, `exchange` the protocol's state machine. Nothing here imports
gRPC, the front or the pool.
"""
