# SPDX-License-Identifier: Apache-2.0
"""Every setting of `updraft-writer serve`, declared once; docs/reference/writer.md is generated from here."""

import os
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from updraft.service.service_settings import MIB, Address, ServiceSettings
from updraft.service.settings import reference_page, restated, setting
from updraft_writer.sinks.location import Root


def _texts(value: object) -> object:
    """One text from the environment; from the command line a list, in which commas may stand too."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    return tuple(part.strip() for text in texts for part in str(text).split(",") if part.strip())


def _checked_roots(roots: tuple[str, ...]) -> tuple[str, ...]:
    for root in roots:
        Root.parse(root)
    return roots


RootPaths = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_texts), AfterValidator(_checked_roots)]


class ServeSettings(ServiceSettings):
    """Write Parquet and ORC for clients of Arrow Flight, holding no more bytes than a quota.

    Every option can also be given as an environment variable: --quota-bytes is UPDRAFT_QUOTA_BYTES. SIGTERM drains the
    writer: open files are finished, no new ones are opened.
    """

    listen: Address = restated(ServiceSettings, "listen", default="127.0.0.1:8816")
    admin_listen: Address = restated(ServiceSettings, "admin_listen", default="127.0.0.1:8826")
    metrics_listen: Address = restated(ServiceSettings, "metrics_listen", default="127.0.0.1:9826")

    root: RootPaths = setting(
        "Absolute path or URI below which files may be written; give it again for another, or several with commas. "
        "What stands behind a `?` in a URI tells pyarrow.fs how its storage is reached. "
        "Without one, files can only be returned to the client.",
        default=(),
        unit="paths",
    )
    quota_bytes: int = setting(
        "Bytes that the writer may hold, from the leave to send a batch until its encoding is stored; 0 computes a "
        "share of the container's memory limit and logs every term.",
        default=0,
        unit="bytes",
        ge=0,
    )
    expected_open_files: int = setting(
        "Files that are expected to be open at once: the computed quota leaves room for what each takes beyond it.",
        default=16,
        unit="files",
        ge=1,
    )
    expected_batch_bytes: int = setting(
        "Size that batches usually have: a part of what an open file takes beyond the quota.",
        default=4 * MIB,
        unit="bytes",
        ge=1,
    )
    max_open_files: int = setting(
        "Files that may be open at once; the next is refused with RESOURCE_EXHAUSTED and a retry hint.",
        default=256,
        unit="files",
        ge=1,
    )
    admission_timeout_seconds: float = setting(
        "Time that a batch may wait for room before its file fails with RESOURCE_EXHAUSTED and a retry hint.",
        default=60.0,
        unit="seconds",
        gt=0,
    )
    bypass_seconds: float = setting(
        "Time for which smaller batches may overtake one that does not fit; then everybody waits for it.",
        default=5.0,
        unit="seconds",
        ge=0,
    )
    retry_after_milliseconds: int = setting(
        "The hint given to a refused client.", default=1000, unit="milliseconds", ge=1
    )
    stall_timeout_seconds: float = setting(
        "End a file whose client does not send a batch within this time after memory was reserved for it, even if the "
        "client sends keepalives: others wait for that memory.",
        default=60.0,
        unit="seconds",
        gt=0,
    )
    storage_silence_seconds: float = setting(
        "Fail a file when one step of its storage (making the file, writing a piece, publishing) has not returned for "
        "this long. The step cannot be interrupted: its memory stays reserved until it returns. 0 sets no limit.",
        default=1800.0,
        unit="seconds",
        ge=0,
    )
    row_group_bytes: int = setting(
        "Raw bytes of a Parquet row group where the client asks for none; many open files in a small quota get less.",
        default=128 * MIB,
        unit="bytes",
        ge=64 * 1024,
    )
    encode_threads: int = setting(
        "Row groups that are encoded at once; by default one for each CPU.",
        default_factory=lambda: os.cpu_count() or 1,
        unit="threads",
        ge=1,
        le=1024,
    )
    encoder: Literal["auto", "cpu", "gpu"] = setting(
        "Where files are encoded: `auto` on a GPU where one can be used, `gpu` does not start without one. Files that "
        "need what the GPU's encoder lacks are encoded on the CPU; each receipt says why.",
        default="auto",
    )
    gpu_memory_bytes: int = setting(
        "Bytes of the GPU's memory that the writer may take; 0 takes 80 % of what is free when it starts.",
        default=0,
        unit="bytes",
        ge=0,
    )
    gpu_working_set: float = setting(
        "How much of the GPU's memory a row group takes while it is encoded, as a multiple of its raw bytes: as many "
        "row groups are encoded there at once as fit by this.",
        default=4.5,
        unit="times",
        ge=1,
    )
    gpu_hold_seconds: float = setting(
        "Time that others wait for a file that holds its place on the GPU between its row groups before it loses it.",
        default=1.0,
        unit="seconds",
        gt=0,
    )
    store_threads: int = setting(
        "Pieces that are on their way to storage at once.", default=64, unit="threads", ge=1, le=1024
    )
    sync_files: bool = setting(
        "Sync (fsync) each file on local or mounted storage, its directory, and directories made for it, before its "
        "receipt. `--no-sync-files` saves that time; a crash or power failure of the machine can then lose or "
        "truncate files that have receipts and that Spark has committed.",
        default=True,
    )
    store_attempts: int = setting(
        "Attempts at creating, renaming or removing a file when the error may pass. A failed write, sync or close is "
        "final, because repeating it can hide lost bytes.",
        default=5,
        unit="attempts",
        ge=1,
    )


def reference() -> str:
    """The reference page of all settings, in Markdown."""
    return reference_page("updraft-writer", ServeSettings)
