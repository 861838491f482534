# SPDX-License-Identifier: Apache-2.0
"""Settings of `updraft-server`, all declared here; docs/reference/server.md is generated from them."""

import os
import tempfile
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from updraft.service.audit_file import STANDARD_OUTPUT
from updraft.service.service_settings import MIB, ServiceSettings
from updraft.service.settings import Settings, reference_page, reference_table, restated, setting
from updraft_server.sandbox_layers import NEEDS, SHARED_MEMORY_PATH
from updraft_server.setting_types import FunctionNames, LayerNames, ModuleNames, PathList, SessionFunctions


class CommonSettings(Settings):
    """Settings that both halves of a pool need, with the same values."""

    session_functions: SessionFunctions = setting(
        "Whether the pool runs functions that Spark sessions send as pickles. off: registered functions alone. "
        "unsigned: whoever may connect (and has the scope session) can run any code in the pool. signed: only what a "
        "driver has signed with a key of --signers-file; whoever has stolen a token can send rows to that, and no code "
        "of its own. prefer-signed: what is signed is checked, what is not runs and is counted in "
        "updraft_session_functions_total, until all drivers sign.",
        default="off",
    )
    max_message_bytes: int = restated(ServiceSettings, "max_message_bytes")
    drain_timeout_seconds: float = restated(ServiceSettings, "drain_timeout_seconds")
    restricted_functions: FunctionNames = setting(
        "Registered function that runs without network and subprocesses, as with the profile restricted, where that of "
        "the pool is compatible. Repeat the option, or separate names with commas.",
        default=(),
        unit="functions",
    )


class FrontSettings(ServiceSettings, CommonSettings):
    """Settings of a pool's front: whom it serves, and how much it takes on."""

    signers_file: Path | None = setting(
        "TOML file of the drivers whose signatures count (docs/guides/signed-functions.md), for --session-functions "
        "signed and prefer-signed. It is read again when it changes: a key or a function is revoked within seconds.",
        default=None,
    )
    max_batch_bytes: int = setting(
        "Maximum size of a batch that is larger than --max-message-bytes and comes in parts, such as a single row with "
        "a large text. Dictionary-encoded columns of a batch may take as much once they are decoded, and so may their "
        "dictionaries. A worker needs --worker-memory-bytes of eight times as much for it.",
        default=1024 * MIB,
        unit="bytes",
        ge=MIB,
        le=2047 * MIB,
    )
    workers: int = setting(
        "Number of worker processes. Each serves one exchange at a time. Defaults to the number of CPUs.",
        default_factory=lambda: os.cpu_count() or 1,
        unit="workers",
        ge=1,
        le=4096,
    )
    fresh_workers: int = setting(
        "Number of workers beyond --workers that are kept ready and have served nobody. A worker serves one owner "
        "(tenant, application and Spark Connect session) until it ends: when all idle workers are those of others, an "
        "owner gets a fresh one at once, and an idle one ends for it. They run nothing beside the others, and none is "
        "kept with --session-functions off. 0 lets a new owner wait until a worker has started.",
        default=2,
        unit="workers",
        ge=0,
        le=256,
    )
    idle_worker_seconds: float = setting(
        "How long a worker keeps what a session has imported and left in memory, from its last exchange; then it ends, "
        "and a new worker takes its place. It uses no CPU meanwhile, and ends earlier if others need its memory. Raise "
        "it for notebooks whose imports are slow, lower it to free memory sooner. Workers of registered functions "
        "stay, except for extra ones of tasks that need several at once. 0 ends a worker with its exchange.",
        default=600.0,
        unit="seconds",
        ge=0,
    )
    allow_remote_stacks: bool = setting(
        "Let every client that may connect read where the Python of workers is (`updraft stack`): the names of files, "
        "lines and functions of every tenant's code, and no values.",
        default=False,
    )
    worker_memory_bytes: int = setting(
        "Anonymous and shared memory that a worker may take, with all processes that its function has started, above "
        "what the image of all workers has. Memory that a forked process shares with its parent counts for both. An "
        "exchange that is found beyond the limit, looked for four times a second, ends with an error, and its worker "
        "with it. 0 computes three quarters of the memory of the container or machine, less what batched functions "
        "hold.",
        default=0,
        unit="bytes",
        ge=0,
    )
    worker_processes: int = setting(
        "Number of processes that a worker may be, with all that its function has started. An exchange that is found "
        "beyond the limit ends with an error, and its worker with it. The process of a batched function has the same "
        "limit.",
        default=512,
        unit="processes",
        ge=1,
    )
    worker_scratch_bytes: int = setting(
        "Disk space that all files in the scratch directory of a worker may take together. An exchange that is found "
        "beyond the limit ends with an error, and its worker with it. Files that are open and have no name any more "
        "are not found: --worker-file-bytes limits each of them. The process of a batched function has the same limit.",
        default=64 * 1024**3,
        unit="bytes",
        ge=1,
    )
    artifact_store_bytes: int = setting(
        "Disk space for artifacts (broadcast variables and files of sessions), under the runtime directory. An "
        "archive counts as what it unpacks to, and twice while it is unpacked; each file and directory counts at least "
        "the volume's bytes per inode. When the space is used up, the tenant that uses most loses its least recently "
        "used artifacts; those of running exchanges are kept.",
        default=8 * 1024 * MIB,
        unit="bytes",
        ge=MIB,
    )
    queue_limit: int = setting(
        "Maximum number of exchanges that wait for a worker. Further ones are refused with RESOURCE_EXHAUSTED and a "
        "retry hint.",
        default=256,
        unit="exchanges",
        ge=0,
    )
    output_lines_per_second: int = setting(
        "Maximum number of lines per second that each exchange's function may print to the pool's log; every further "
        "KiB of a line counts as another line. Bursts may be twice as large. Excess lines are dropped and counted.",
        default=100,
        unit="lines",
        ge=1,
        le=10_000,
    )
    batch_timeout_seconds: float | None = setting(
        "End a worker whose function works on one batch for longer than this, from when it takes that until it takes "
        "the next one or ends, however many batches it returns meanwhile. Waiting for the client does not count. "
        "Batches that are joined for a registered aggregate have the time of all of them. "
        "Workers count it with the kernel's timer of real time, which functions then cannot use. "
        "Defaults to one day, which the front counts alone. 0 sets no limit.",
        default=None,
        unit="seconds",
        ge=0,
    )
    batch_cpu_seconds: float | None = setting(
        "End a worker whose function uses more CPU time than this for one batch, in all its processes together. "
        "Counted from when the function takes a batch until it takes the next one, or ends after the last one, however "
        "many batches it returns meanwhile. Batches that are joined for a registered aggregate count as one. The "
        "process of a batched function has the same limit. Defaults to one day for each CPU of the machine. "
        "0 sets no limit.",
        default=None,
        unit="seconds",
        ge=0,
    )
    worker_silence_seconds: float = setting(
        "End a worker that hangs: for this long it has taken no batch, returned none, and used no CPU time in any of "
        "its processes. A function that computes is never ended by this limit. 0 sets no limit.",
        default=3600.0,
        unit="seconds",
        ge=0,
    )

    @model_validator(mode="after")
    def _signers_go_with_signatures(self) -> Self:
        if (self.signers_file is not None) != (self.session_functions in ("signed", "prefer-signed")):
            raise ValueError("--signers-file goes with --session-functions signed or prefer-signed, and these with it")
        return self


class WorkersSettings(CommonSettings):
    """Settings of a pool's workers' side: what workers load, and what they may do."""

    functions: ModuleNames = setting(
        "Python module with registered functions (@function); the pool runs them by name. One that cannot be imported "
        "is reported as a fault, and the others are served. Repeat the option, or separate modules with commas. "
        "Modules must be installed or on PYTHONPATH.",
        default=(),
        unit="modules",
    )
    load_timeout_seconds: float = setting(
        "Give up a module of --functions that takes longer to be imported, and a registered function that takes longer "
        "to be constructed and whose author has not set load_timeout_seconds. It is reported as a fault, and "
        "everything else is served. 0 sets no limit.",
        default=600.0,
        unit="seconds",
        ge=0,
    )
    model_memory_bytes: int = setting(
        "Anonymous and shared memory that the processes of all batched functions may hold together, above what the "
        "image of all workers has. With a limit, a function is loaded when it is called, and processes of those that "
        "were called least recently end to make room for it; they come back with their next call. A process that "
        "needs more than this alone is ended. 0 loads all functions at the start, and ends a process that takes three "
        "quarters of the memory of the container or machine.",
        default=0,
        unit="bytes",
        ge=0,
    )
    max_exchanges_per_worker: int = setting(
        "Replace a worker after this many exchanges, to contain functions that leak memory. 0 never replaces it.",
        default=0,
        unit="exchanges",
        ge=0,
    )
    writable_paths: PathList = setting(
        "Directory or file that session functions may write to, beside each worker's own scratch directory. All owners "
        "share it: what one leaves there, another can read and change. /tmp is not writable unless it is named here. "
        "Repeat the option, or separate paths with commas.",
        default=(),
        unit="paths",
    )
    hidden_paths: PathList = setting(
        "Directory or file that session functions cannot read, beside the pool's own secrets: its token file, its TLS "
        "key and its runtime directory. Repeat the option, or separate paths with commas.",
        default=(),
        unit="paths",
    )
    profile: Literal["compatible", "restricted"] = setting(
        "What functions may do beside computing. compatible: network and subprocesses, as on stock PySpark. "
        "restricted: neither; opening a socket, starting a process or running a program raises PermissionError, in "
        "registered functions too. Threads work in both. A pool does not start where the kernel cannot restrict.",
        default="compatible",
    )
    shared_memory: Literal["own", "pool", "machine"] = setting(
        "The /dev/shm of workers. own: each worker has one of its own, which ends with it, if the kernel lets the "
        "pool's user mount (the layer shared-memory). Otherwise it is that of the machine or pod, and only functions "
        "of clients that name no tenant may use it, since files there outlive their exchange. pool: the same, but this "
        "pool alone uses /dev/shm, as in a container: all functions may use it, and the pool removes files that are "
        "neither open nor mapped when the last running exchange of an owner ends. machine: that of the machine, for "
        "all functions; files stay until they are removed. A shared /dev/shm cannot be listed, but files can be opened "
        "by name; with the profile restricted, own and pool give none that is shared.",
        default="own",
    )
    worker_file_bytes: int = setting(
        "Size that a file may reach to which a worker or a process of its function writes; beyond it a write fails "
        "with the error File too large. It holds for files in /dev/shm too.",
        default=64 * 1024 * MIB,
        unit="bytes",
        ge=MIB,
    )
    worker_descriptors: int = setting(
        "Number of files, sockets and pipes that a worker, and each process that its function starts, may have open; "
        "beyond it a call fails with the error Too many open files. At most what the service itself may have, less a "
        "reserve.",
        default=65_536,
        unit="descriptors",
        ge=256,
    )
    require: LayerNames = setting(
        "Layer of the workers' sandbox without which the pool does not start: "
        f"{', '.join(NEEDS)}. Repeat the option, or separate layers with commas. A layer that is not required is used "
        "where the kernel has it; the log, the status and the metrics show which are on.",
        default=(),
        unit="layers",
    )

    @model_validator(mode="after")
    def _nothing_writable_holds_a_secret(self) -> Self:
        # The kernel's rules allow everything that lies beneath a path.
        for writable in (*self.writable_paths, SHARED_MEMORY_PATH):
            for secret in (*self.secret_paths, *map(str, self.own_directories)):
                if Path(secret).resolve().is_relative_to(Path(writable).resolve()):
                    raise ValueError(
                        f"session functions may write to {writable}, which holds {secret}: keep the pool's own files "
                        "elsewhere (--runtime-directory), or name less than that in --writable-paths"
                    )
        return self

    @property
    def own_directories(self) -> Sequence[Path]:
        """Directories of the pool, of which workers see only what is their own."""
        raise NotImplementedError

    @property
    def secret_paths(self) -> tuple[str, ...]:
        """Paths that session functions cannot read, beside the pool's own directories."""
        return self.hidden_paths


class ServeSettings(WorkersSettings, FrontSettings):
    """Serve a pool of Python workers over Arrow Flight.

    Every option can also be set by an environment variable: --drain-timeout-seconds is
    UPDRAFT_DRAIN_TIMEOUT_SECONDS. SIGTERM drains the pool: it finishes what runs and accepts nothing new.
    """

    runtime_directory: Path | None = setting(
        "Private directory for artifacts and for the workers' scratch directories. Defaults to a new directory under "
        "the system's temporary directory. No other pool may use it.",
        default=None,
    )

    @property
    def own_directories(self) -> Sequence[Path]:
        """The runtime directory."""
        return [self.runtime_directory or Path(tempfile.gettempdir()) / "updraft-*"]

    @property
    def secret_paths(self) -> tuple[str, ...]:
        """Paths that session functions cannot read, beside the pool's own directories; with the front's secrets."""
        audit = None if self.audit_file == STANDARD_OUTPUT else self.audit_file
        secrets = (self.token_file, self.identities_file, self.tls_key_file, self.metrics_token_file)
        # The file of signers is not a secret, but whoever could write to it could become a signer.
        files = (*secrets, self.signers_file, audit)
        return (*(str(file.absolute()) for file in files if file is not None), *self.hidden_paths)


class SeparateFrontSettings(FrontSettings):
    """Serve a pool's clients, with workers that run elsewhere on this machine or in another container of the pod.

    The workers are started by `updraft-server workers` and may come and go: without them the front is not ready. Every
    option can also be set by an environment variable: --drain-timeout-seconds is UPDRAFT_DRAIN_TIMEOUT_SECONDS. SIGTERM
    drains the pool: it finishes what runs and accepts nothing new.
    """

    runtime_directory: Path = setting(
        "Directory in which the workers find the front, and the artifacts of sessions. The user's group may read it. "
        "It has to be seen on the workers' side under the same path, where it may be read-only. No other pool may use "
        "it.",
    )


class SeparateWorkersSettings(WorkersSettings):
    """Run a pool's workers, for a front that runs elsewhere on this machine or in another container of the pod.

    The front is started by `updraft-server front`; the workers wait for it, and all of them end when they lose it. What
    both commands can be told has to be the same. Every option can also be set by an environment variable:
    --worker-file-bytes is UPDRAFT_WORKER_FILE_BYTES. After SIGTERM the workers serve on until the front has drained.
    """

    front_directory: Path = setting("The front's --runtime-directory.")
    runtime_directory: Path | None = setting(
        "Private directory for the workers' scratch directories. Defaults to a new directory under the system's "
        "temporary directory. No other pool may use it.",
        default=None,
    )

    @property
    def own_directories(self) -> Sequence[Path]:
        """The front's directory and the workers' own."""
        return [self.front_directory, self.runtime_directory or Path(tempfile.gettempdir()) / "updraft-*"]


def reference() -> str:
    """Return the reference page of all settings, in Markdown."""
    return (
        reference_page("updraft-server", ServeSettings)
        + f"""
# The halves of a pool as two commands

`updraft-server front` and `updraft-server workers` take the same settings as above, those that concern them, but for
the directories. Those that both take have to be the same for both.

## `updraft-server front` alone

{reference_table(SeparateFrontSettings, ["runtime_directory"])}
It also takes {_options(SeparateFrontSettings, ["runtime_directory"])}.

## `updraft-server workers` alone

{reference_table(SeparateWorkersSettings, ["front_directory", "runtime_directory"])}
It also takes {_options(SeparateWorkersSettings, ["front_directory", "runtime_directory"])}.
"""
    )


def _options(settings: type[Settings], but: Container[str]) -> str:
    names = sorted(name for name in settings.model_fields if name not in but)
    return ", ".join(f"`--{name.replace('_', '-')}`" for name in names)
