# SPDX-License-Identifier: Apache-2.0
"""Every setting of `updraft-server serve`, declared once; docs/reference/server.md is generated from here."""

import os
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator
from pydantic_settings import NoDecode

from updraft.service.service_settings import MIB, ServiceSettings
from updraft.service.settings import reference_page, setting


def _module_names(value: object) -> object:
    """One text from the environment; from the command line a list, in which commas may stand too."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    names = tuple(name.strip() for text in texts for name in str(text).split(",") if name.strip())
    for name in names:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f"{name!r} is not the name of a Python module: expected the form package.module")
    return names


ModuleNames = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_module_names)]


class ServeSettings(ServiceSettings):
    """Serve a pool of Python workers over Arrow Flight.

    Every option can also be given as an environment variable: --drain-timeout-seconds is
    UPDRAFT_DRAIN_TIMEOUT_SECONDS. SIGTERM drains the pool: what runs is finished, nothing new is taken.
    """

    run: Literal["both", "front", "workers"] = setting(
        "Which half of a pool to run here: the front, which serves clients, the workers, which run functions, or both. "
        "The halves find each other in --runtime-directory, wait for each other, and need the same settings; those of "
        "listeners, tokens and certificates are the front's alone.",
        default="both",
    )
    workers: int = setting(
        "Worker processes, and so exchanges that run at once; by default one for each CPU.",
        default_factory=lambda: os.cpu_count() or 1,
        unit="workers",
        ge=1,
        le=4096,
    )
    functions: ModuleNames = setting(
        "Python module whose functions the pool runs by name: importing it registers them. Give it again for another "
        "module, or several with commas between them. Modules are found where they are installed or on PYTHONPATH.",
        default=(),
        unit="modules",
    )
    max_exchanges_per_worker: int = setting(
        "Exchanges after which a worker is replaced by a fresh one, against functions that leak; 0 never does.",
        default=0,
        unit="exchanges",
        ge=0,
    )
    allow_session_functions: bool = setting(
        "Run functions that a Spark session ships as pickles. Whoever may connect may then run any code here.",
        default=False,
    )
    runtime_directory: Path | None = setting(
        "Private directory for the sockets between the pool's processes; by default a new one under the system's "
        "directory for temporary files. Two halves of a pool need the same one, and no other pool may use it.",
        default=None,
    )

    content_store_bytes: int = setting(
        "Disk space, under the runtime directory, for what session functions need beside their pickle: broadcast "
        "variables and files. The least recently used goes first, never what a running exchange needs.",
        default=8 * 1024 * MIB,
        unit="bytes",
        ge=MIB,
    )
    content_timeout_seconds: float = setting(
        "Time within which a client must send the next part of a content that it was asked for.",
        default=60.0,
        unit="seconds",
        gt=0,
    )

    queue_limit: int = setting(
        "Exchanges that may wait for a worker; the next is refused with RESOURCE_EXHAUSTED and a retry hint.",
        default=256,
        unit="exchanges",
        ge=0,
    )
    queue_bytes: int = setting(
        "Memory that the commands of waiting exchanges may take together.", default=512 * MIB, unit="bytes", ge=MIB
    )
    retry_after_milliseconds: int = setting(
        "The hint given to a refused client.", default=500, unit="milliseconds", ge=1
    )
    output_lines_per_second: int = setting(
        "Lines per second that a function may print to the pool's log, for each exchange; each further KiB of a line "
        "counts as another line. A burst may be twice as large. What exceeds this is dropped and counted.",
        default=100,
        unit="lines",
        ge=1,
        le=10_000,
    )
    batch_timeout_seconds: float = setting(
        "Time that a function may work on one batch before its worker is ended; waiting for the client does not count. "
        "A client may ask for less. 0 sets no limit.",
        default=0.0,
        unit="seconds",
        ge=0,
    )
    worker_silence_seconds: float = setting(
        "End a worker that takes no batch, returns none and uses no CPU time in any of its processes for this long: "
        "its function hangs. A function that computes is never ended by this. 0 sets no limit.",
        default=3600.0,
        unit="seconds",
        ge=0,
    )

    @model_validator(mode="after")
    def _halves_find_each_other(self) -> Self:
        if self.run != "both" and self.runtime_directory is None:
            raise ValueError(f"--run {self.run} needs --runtime-directory: the other half is found there")
        return self


def reference() -> str:
    """The reference page of all settings, in Markdown."""
    return reference_page("updraft-server", ServeSettings)
