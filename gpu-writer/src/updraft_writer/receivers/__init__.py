# SPDX-License-Identifier: Apache-2.0
"""Receivers: processes that accept client connections for a writer on a machine with many cores.

A receiver terminates gRPC: it reads messages from the network and passes them to the writer's process over a socket. It
copies the bodies of batches into memory that both processes share. The writer's process makes all decisions: on
credentials, limits, quota, files and answers. A receiver reads a message only when the writer's process asks for it, so
a receiver holds at most one message for each call.

`process` and `receiver` run in a receiver. `relay`, `receivers` and `shared_memory` run in the writer's process.
"""

LEAST_CORES = 16
"""Fewest cores with which a writer starts receivers."""
LEAST_RECEIVERS = 2
MOST_RECEIVERS = 8
_CORES_FOR_A_RECEIVER = 4

RECEIVER_BYTES = 64 << 20
"""Memory of an idle receiver. The default quota is smaller by this much for each receiver."""


def number_of_receivers(cores: int) -> int:
    """Return how many receivers a writer with this many cores starts; 0 if the writer's process receives."""
    if cores < LEAST_CORES:
        return 0
    return max(LEAST_RECEIVERS, min(MOST_RECEIVERS, cores // _CORES_FOR_A_RECEIVER))
