# SPDX-License-Identifier: Apache-2.0
"""What a worker obeys. The zygote gets it as JSON (`updraft_server.zygote.process`) and every worker inherits it by
fork."""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Limits and permissions of every worker of a pool."""

    allow_session_functions: bool = False
    """Run what clients ship (cloudpickle), not only what is deployed."""
    signed_functions_alone: bool = False
    """Whether clients may send rows but no code: pickled rows are read without running any."""
    restricted_functions: Sequence[str] = ()
    """Registered functions that run without network and subprocesses: the front says so with each exchange, and the
    processes of batched ones are started so."""
    load_timeout_seconds: float = 0.0
    """How long a module may take to be imported, and a registered function to be loaded whose author has set no limit;
    0 is no limit."""
    max_message_bytes: int = 64 * 1024 * 1024
    """Header and body of one message: a batch, or a part of one."""
    max_batch_rows: int = 16 * 1024 * 1024
    """Rows of one request batch: columns without buffers can claim any number of them."""
    max_command_bytes: int = 64 * 1024 * 1024
    """The command of an exchange, pickled functions included."""
    max_reply_batch_bytes: int = 64 * 1024 * 1024
    """One message of a reply, a batch or a part of one; a client may ask for less."""
    max_exchanges_per_worker: int = 0
    """Exchanges after which a worker is replaced; 0 is never."""
    worker_file_bytes: int = 64 * 1024**3
    """Size of a file that a function writes."""
    worker_descriptors: int = 65_536
    """Open files, sockets and pipes of each process of a worker."""
    hidden_paths: Sequence[str] = ()
    """Files and directories that session functions cannot read: the pool's secrets and its own state."""
    readable_paths: Sequence[str] = ()
    """Beneath hidden paths, what they can read all the same."""
    writable_paths: Sequence[str] = ()
    """Where session functions may write, beside the worker's own scratch directory."""
