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
from updraft_server.segments_directory import segments_directory
from updraft_server.setting_types import FunctionNames, LayerNames, ModuleNames, PathList, SessionFunctions


class CommonSettings(Settings):
    """Settings that both halves of a pool need, with the same values."""

    session_functions: SessionFunctions = setting(
        "Whether the pool runs functions that Spark sessions send as pickles; choose by how far you trust the "
        "clients. off: only registered functions. unsigned: anyone who may connect (with the scope session) can run "
        "any code in the pool. signed: only functions that a driver has signed with a key of --signers-file; someone "
        "with a stolen token can send rows to those, but no code. prefer-signed: signed functions are checked, others "
        "run and are counted in updraft_session_functions_total; use it until all drivers sign.",
        default="off",
        common=True,
    )
    max_message_bytes: int = restated(ServiceSettings, "max_message_bytes")
    drain_timeout_seconds: float = restated(ServiceSettings, "drain_timeout_seconds")
    restricted_functions: FunctionNames = setting(
        "Registered function to run without network and subprocesses, as with --profile restricted, in a pool whose "
        "profile is compatible. Set it for functions whose data must not leave the pool. Repeat the option, or "
        "separate names with commas.",
        default=(),
        unit="functions",
    )


class FrontSettings(ServiceSettings, CommonSettings):
    """Settings of a pool's front: whom it serves, and how much it takes on."""

    signers_file: Path | None = setting(
        "TOML file with the drivers whose signatures count (docs/guides/signed-functions.md). Set it with "
        "--session-functions signed or prefer-signed. The pool reads it again when it changes, so a key or a function "
        "is revoked within seconds.",
        default=None,
    )
    max_batch_bytes: int = setting(
        "Maximum size of a batch that is larger than --max-message-bytes and so comes in parts, such as a single row "
        "with a large text. Raise it if an error names it, and set --worker-memory-bytes to at least eight times as "
        "much. The same limit applies to a batch with decoded dictionary-encoded columns, and to all dictionaries of "
        "an exchange together.",
        default=1024 * MIB,
        unit="bytes",
        ge=MIB,
        le=2047 * MIB,
    )
    workers: int = setting(
        "Number of worker processes. Each serves one exchange, so one Spark task, at a time. Raise it for functions "
        "that wait for other services, lower it for functions that use several CPUs. Defaults to the number of CPUs.",
        default_factory=lambda: os.cpu_count() or 1,
        unit="workers",
        ge=1,
        le=4096,
        common=True,
    )
    fresh_workers: int = setting(
        "Number of unused workers kept ready, in addition to --workers. A worker serves one owner "
        "(tenant, application and Spark Connect session) until it ends. If all idle workers belong to others, a new "
        "owner gets a fresh worker at once, in the place of one of the idle workers. Raise this number if many "
        "sessions start at the same time. With 0, a new owner waits until an idle worker has ended and a new one has "
        "started. With --session-functions off, the pool keeps no fresh workers.",
        default=2,
        unit="workers",
        ge=0,
        le=256,
    )
    idle_worker_seconds: float = setting(
        "Time for which a worker stays after its session's last exchange, with what the session has imported and "
        "left in memory. Then the pool replaces it; sooner if others need its memory. Raise it for notebooks with "
        "slow imports, lower it to free memory sooner. Workers of registered functions stay, except for the extra "
        "workers of tasks that need several at once. 0 ends a worker with its exchange.",
        default=600.0,
        unit="seconds",
        ge=0,
    )
    allow_remote_stacks: bool = setting(
        "Let every client that may connect see where the Python code of workers is (`updraft stack`, `updraft "
        "profile --all`): names of files, lines and functions of every tenant's code, but no values. Set it to find "
        "out why functions hang or are slow.",
        default=False,
    )
    worker_memory_bytes: int = setting(
        "Maximum anonymous and shared memory of a worker with all processes that its function has started, above the "
        "memory of the image that all workers share. Lower it to keep one function from taking the memory of all, "
        "raise it if an error names it. Memory is sampled four times a second; beyond the limit the exchange ends "
        "with an error, and its worker with it. Memory that a forked process shares with its parent counts for both. "
        "0 computes three quarters of the memory of the container or machine, less what batched functions hold.",
        default=0,
        unit="bytes",
        ge=0,
        common=True,
    )
    worker_processes: int = setting(
        "Maximum number of processes of a worker, with all that its function has started. Each allows 16 threads on "
        "average. Lower it if functions are hostile, raise it if an error names it. Beyond the limit the exchange "
        "ends with an error, and its worker with it. The process of a batched function has the same limit.",
        default=512,
        unit="processes",
        ge=1,
    )
    worker_scratch_bytes: int = setting(
        "Maximum disk space of all files in a worker's scratch directory together, with one file per 64 KiB (at least "
        "10,000, at most a million). Set it to less than the disk has. Beyond the limit the exchange ends with an "
        "error, and its worker with it. Open files without a name do not count, but --worker-file-bytes "
        "limits each of them. The process of a batched function has the same limit.",
        default=64 * 1024**3,
        unit="bytes",
        ge=1,
    )
    artifact_store_bytes: int = setting(
        "Disk space for artifacts (broadcast variables and files of sessions), under the runtime directory. Raise it "
        "if clients are refused for lack of room, or if jobs send the same files again and again. An archive counts "
        "with its unpacked size, and twice while it is unpacked. When the space is used up, the tenant that uses most "
        "loses its least recently used artifacts; artifacts of running exchanges are kept.",
        default=8 * 1024 * MIB,
        unit="bytes",
        ge=MIB,
    )
    queue_limit: int = setting(
        "Maximum number of exchanges that wait for a worker. Further exchanges are refused with RESOURCE_EXHAUSTED and "
        "a retry hint, and try other pods. Raise it if many small tasks wait for few workers.",
        default=256,
        unit="exchanges",
        ge=0,
    )
    output_lines_per_second: int = setting(
        "Maximum number of lines per second that the function of each exchange may print to the pool's log; every "
        "further KiB of a line counts as another line. Bursts may be twice as large; excess lines are dropped and "
        "counted. Raise it to see all output of functions that print a lot.",
        default=100,
        unit="lines",
        ge=1,
        le=10_000,
    )
    batch_timeout_seconds: float | None = setting(
        "End a worker whose function works on one batch for longer than this. Set it if you know how long a batch "
        "takes at most. Time counts from when the function takes a batch until it takes the next one or ends, however "
        "many batches it returns meanwhile; waiting for the client does not count. Batches that are joined for a "
        "registered aggregate may take the sum of their limits. If the limit is set, workers use the timer ITIMER_REAL "
        "for it, so functions cannot (signal.alarm, signal.setitimer). Defaults to one day, which only the front "
        "measures. 0 sets no limit.",
        default=None,
        unit="seconds",
        ge=0,
    )
    batch_cpu_seconds: float | None = setting(
        "End a worker whose function uses more CPU time than this for one batch, in all its processes together. Set "
        "it to stop functions that compute without end. Time counts from when the function takes a batch until it "
        "takes the next one or ends, however many batches it returns meanwhile. Batches that are joined for a "
        "registered aggregate count as one. The process of a batched function has the same limit. Defaults to one day "
        "for each CPU of the machine. 0 sets no limit.",
        default=None,
        unit="seconds",
        ge=0,
    )
    worker_silence_seconds: float = setting(
        "End a worker that hangs: it has taken no batch, returned none, and used no CPU time in any of its processes "
        "for this long. Raise it for functions that wait longer for other services. A function that computes is never "
        "ended by this limit. 0 sets no limit.",
        default=3600.0,
        unit="seconds",
        ge=0,
    )

    @model_validator(mode="after")
    def _signers_go_with_signatures(self) -> Self:
        if (self.signers_file is not None) != (self.session_functions in ("signed", "prefer-signed")):
            raise ValueError(
                f"--session-functions {self.session_functions} needs --signers-file"
                if self.signers_file is None
                else f"--signers-file needs --session-functions signed or prefer-signed, not {self.session_functions}"
            )
        return self


class WorkersSettings(CommonSettings):
    """Settings of a pool's workers' side: what workers load, and what they may do."""

    functions: ModuleNames = setting(
        "Python module with registered functions (@function), which the pool runs by name. The module must be "
        "installed or on PYTHONPATH. If it cannot be imported, the pool reports a fault and serves the others. Repeat "
        "the option, or separate modules with commas.",
        default=(),
        unit="modules",
        common=True,
    )
    load_timeout_seconds: float = setting(
        "Time limit for loading a module of --functions, and for a registered function whose author has set no "
        "load_timeout_seconds. If loading takes longer, the pool reports a fault and serves everything else. Raise it "
        "for models that take long to load. 0 sets no limit.",
        default=600.0,
        unit="seconds",
        ge=0,
    )
    model_memory_bytes: int = setting(
        "Maximum anonymous and shared memory of the model processes of all batched functions together, above the "
        "memory of the image that all workers share. Set it if not all models fit: the pool then loads a function "
        "when it is called, and ends the processes of the least recently called functions to make room. It also ends "
        "a process that alone exceeds the limit. With 0, the pool loads all functions at the start, and ends a process "
        "that takes more than three quarters of the memory of the container or machine.",
        default=0,
        unit="bytes",
        ge=0,
    )
    max_exchanges_per_worker: int = setting(
        "Replace a worker after this many exchanges. Set it for functions or libraries that leak memory. 0 never "
        "replaces it.",
        default=0,
        unit="exchanges",
        ge=0,
    )
    writable_paths: PathList = setting(
        "Directory or file that session functions may write to, in addition to each worker's scratch directory. Set "
        "it for data that functions have to leave on a volume. All owners share it: they can read and change each "
        "other's files. /tmp is not writable unless it is named here. Repeat the option, or separate paths with "
        "commas.",
        default=(),
        unit="paths",
    )
    hidden_paths: PathList = setting(
        "Directory or file that session functions cannot read, in addition to the pool's own secrets: its token file, "
        "its TLS key and its runtime directory. Set it for secrets of other programs on the machine. Repeat the "
        "option, or separate paths with commas.",
        default=(),
        unit="paths",
    )
    profile: Literal["compatible", "restricted"] = setting(
        "What functions may do in addition to computing. compatible: use the network and start processes, as on stock "
        "PySpark. restricted: neither; opening a socket, starting a process or running a program raises "
        "PermissionError, in registered functions too. Set it to restricted if functions must not reach the network. "
        "Threads work in both. The pool does not start if the kernel cannot restrict.",
        default="compatible",
    )
    shared_memory: Literal["own", "pool", "machine"] = setting(
        "The /dev/shm that workers use. own: each worker has a private /dev/shm, which is removed with the worker, "
        "if the kernel lets the pool's user mount (the layer shared-memory). Otherwise workers share /dev/shm of the "
        "machine or pod, and only functions of clients that name no tenant may use it: files outlive their exchange. "
        "pool: like own, but for a pool that alone uses /dev/shm, as in a container. If workers share it, all "
        "functions may use it, and when the last running exchange of an owner ends, the pool removes files that are "
        "neither open nor mapped. machine: all functions use /dev/shm of the machine; files stay until someone removes "
        "them. Set it to pool in a container, to machine if functions exchange files with other programs there. "
        "Functions cannot list a shared /dev/shm, but they can open files by name. With the profile restricted, own "
        "and pool never share it.",
        default="own",
    )
    worker_file_bytes: int = setting(
        "Maximum size of each file that a worker or a process of its function writes, also in /dev/shm; beyond it a "
        "write fails with the error File too large. Raise it if functions report this error.",
        default=64 * 1024 * MIB,
        unit="bytes",
        ge=MIB,
    )
    worker_descriptors: int = setting(
        "Maximum number of open files, sockets and pipes of a worker and of each process that its function starts; "
        "beyond it a call fails with the error Too many open files. Lower it if functions are hostile, because no "
        "other limit counts the data that waits in their sockets. The effective limit is never above the service's own "
        "limit of open files, less a reserve.",
        default=65_536,
        unit="descriptors",
        ge=256,
    )
    require: LayerNames = setting(
        f"Required layer of the workers' sandbox: {', '.join(NEEDS)}. The pool does not start if the kernel lacks a "
        "required layer, and uses the other layers if the kernel has them. Set it if functions may be hostile. Repeat "
        "the option, or separate layers with commas. The log, the status and the metrics show which layers are on.",
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
        """Directories of the pool; workers see only their own parts of these."""
        raise NotImplementedError

    @property
    def secret_paths(self) -> tuple[str, ...]:
        """Paths that session functions cannot read, in addition to the pool's own directories."""
        return self.hidden_paths


class ServeSettings(WorkersSettings, FrontSettings):
    """Serve a pool of Python workers over Arrow Flight.

    Every option can also be set by an environment variable: --drain-timeout-seconds is
    UPDRAFT_DRAIN_TIMEOUT_SECONDS. SIGTERM drains the pool: it finishes what runs and accepts nothing new.
    """

    runtime_directory: Path | None = setting(
        "Private directory for artifacts and for the workers' scratch directories. Set it to a disk with room for "
        "them. No other pool may use it. Defaults to a new directory under the system's temporary directory.",
        default=None,
        common=True,
    )

    @property
    def own_directories(self) -> Sequence[Path]:
        """The runtime directory."""
        return [self.runtime_directory or Path(tempfile.gettempdir()) / "updraft-*"]

    @property
    def secret_paths(self) -> tuple[str, ...]:
        """Paths that session functions cannot read, beyond the pool's own directories; includes the front's secrets."""
        audit = None if self.audit_file == STANDARD_OUTPUT else self.audit_file
        secrets = (self.token_file, self.identities_file, self.tls_key_file, self.metrics_token_file)
        # The file of signers is not a secret, but a process that could write to it could add itself as a signer.
        segments = segments_directory(self.listen_address, self.listen_unix)
        # The sandbox lets no function list /dev/shm.
        listed = None if segments is None or segments.is_relative_to(SHARED_MEMORY_PATH) else segments
        files = (*secrets, self.signers_file, audit, listed)
        return (*(str(file.absolute()) for file in files if file is not None), *self.hidden_paths)


class SeparateFrontSettings(FrontSettings):
    """Serve a pool's clients, with workers that run elsewhere on this machine or in another container of the pod.

    `updraft-server workers` starts the workers. They may end and start again; without them the front is not ready.
    Every option can also be set by an environment variable: --drain-timeout-seconds is UPDRAFT_DRAIN_TIMEOUT_SECONDS.
    SIGTERM drains the pool: it finishes what runs and accepts nothing new.
    """

    runtime_directory: Path = setting(
        "Directory in which the workers find the front, with the artifacts of sessions. The workers' side has to see "
        "it under the same path, where it may be read-only; the user's group may read it. No other pool may use it.",
    )


class SeparateWorkersSettings(WorkersSettings):
    """Run a pool's workers, for a front that runs elsewhere on this machine or in another container of the pod.

    `updraft-server front` starts the front. The workers wait for it, and all of them end when they lose it. Give both
    commands the same values for the options that both have. Every option can also be set by an environment variable:
    --worker-file-bytes is UPDRAFT_WORKER_FILE_BYTES. After SIGTERM the workers serve on until the front has drained.
    """

    front_directory: Path = setting("The front's --runtime-directory.")
    runtime_directory: Path | None = setting(
        "Private directory for the workers' scratch directories. Set it to a disk with room for them. No other pool "
        "may use it. Defaults to a new directory under the system's temporary directory.",
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
## The halves of a pool as two commands

`updraft-server front` and `updraft-server workers` each take a part of the settings above; only the directories differ.
Give both commands the same values for the settings that both take.

### `updraft-server front` alone

{reference_table(SeparateFrontSettings, ["runtime_directory"])}
It also takes {_options(SeparateFrontSettings, ["runtime_directory"])}.

### `updraft-server workers` alone

{reference_table(SeparateWorkersSettings, ["front_directory", "runtime_directory"])}
It also takes {_options(SeparateWorkersSettings, ["front_directory", "runtime_directory"])}.
"""
    )


def _options(settings: type[Settings], but: Container[str]) -> str:
    names = sorted(name for name in settings.model_fields if name not in but)
    return ", ".join(f"`--{name.replace('_', '-')}`" for name in names)
