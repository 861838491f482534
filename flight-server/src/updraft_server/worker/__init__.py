# SPDX-License-Identifier: Apache-2.0
"""Worker process: runs one exchange at a time. It reads frames, calls a function, and writes frames.

`process` is the loop, `channel` is the blocking socket, and `exchange` is the protocol's state machine. Nothing here
imports gRPC, the front or the pool.
"""
