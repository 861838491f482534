# SPDX-License-Identifier: Apache-2.0
"""Settings of workers. The zygote receives them as JSON (`updraft_server.zygote.process`), and workers inherit them."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Limits and permissions of every worker of a pool."""

    allow_session_functions: bool = False
    """Whether to run functions that clients ship (cloudpickle), in addition to registered functions."""
    signed_functions_alone: bool = False
    """Whether the pool runs only signed code. Workers then read pickled rows without running code in the rows."""
    restricted_functions: Sequence[str] = ()
    """Registered functions that run without network and subprocesses.

    The front restricts exchanges with these functions. The zygote restricts the model processes of the batched
    functions among them.
    """
    load_timeout_seconds: float = 0.0
    """Time limit of an import, and of loading a function whose author has not set a limit; 0 means no limit."""
    max_message_bytes: int = 64 * 1024 * 1024
    """Largest header and body of one message, which is a batch or a part of a batch."""
    max_batch_rows: int = 16 * 1024 * 1024
    """Most rows of one request batch. Columns without buffers could otherwise claim any number of rows."""
    max_command_bytes: int = 64 * 1024 * 1024
    """Largest command of an exchange, pickled functions included."""
    max_reply_batch_bytes: int = 64 * 1024 * 1024
    """Largest message of a reply, which is a batch or a part of a batch; a client may request a lower limit."""
    max_exchanges_per_worker: int = 0
    """Exchanges after which a worker is replaced; 0 means never."""
    worker_file_bytes: int = 64 * 1024**3
    """Largest file that a function may write."""
    worker_descriptors: int = 65_536
    """Most open files, sockets and pipes of each process of a worker."""
    hidden_paths: Sequence[str] = ()
    """Files and directories that session functions cannot read: the pool's secrets and its own state."""
    readable_paths: Sequence[str] = ()
    """Paths beneath hidden paths that session functions can read anyway."""
    writable_paths: Sequence[str] = ()
    """Paths where session functions may write, in addition to the worker's own scratch directory."""
