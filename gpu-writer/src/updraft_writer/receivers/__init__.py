# SPDX-License-Identifier: Apache-2.0
"""Receivers: processes that accept client connections for a writer on a machine with many cores.

A receiver terminates gRPC: it takes messages off the network and passes them on to the writer's process over a
socket. It puts bodies into memory that both processes share. All decisions stay in the writer's process: credentials,
limits, quota, files and answers. A receiver reads a message only when the writer's process asks for it, so it holds at
most one message for each call.

`process` and `receiver` run in a receiver. `relay`, `receivers` and `shared_memory` run in the writer's process.
"""

LEAST_CORES = 16
"""Fewest cores with which a writer starts receivers."""
LEAST_RECEIVERS = 2
MOST_RECEIVERS = 8
_CORES_FOR_A_RECEIVER = 4

RECEIVER_BYTES = 64 << 20
"""Memory of an idle receiver. The computed quota is smaller by this for each receiver."""


def number_of_receivers(cores: int) -> int:
    """Return how many receivers a writer with this many cores has; 0 if it receives in its own process."""
    if cores < LEAST_CORES:
        return 0
    return max(LEAST_RECEIVERS, min(MOST_RECEIVERS, cores // _CORES_FOR_A_RECEIVER))
