# SPDX-License-Identifier: Apache-2.0
"""Settings of `updraft-writer serve`, declared once; docs/reference/writer.md is generated from them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator
from pydantic_settings import NoDecode

from updraft.service.service_settings import MIB, Address, ServiceSettings
from updraft.service.setting_names import camel_case
from updraft.service.settings import reference_page, restated, setting, split_at_commas
from updraft_writer.location import Root


def _checked_roots(roots: tuple[str, ...]) -> tuple[str, ...]:
    for root in roots:
        Root.parse(root)
    return roots


RootPaths = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_at_commas), AfterValidator(_checked_roots)]


class ServeSettings(ServiceSettings):
    """Write Parquet and ORC files for Arrow Flight clients, within a quota of bytes.

    Every option can also be set by an environment variable: --quota-bytes is UPDRAFT_QUOTA_BYTES. SIGTERM drains the
    writer: it finishes open files and opens no new ones.
    """

    listen: Address = restated(ServiceSettings, "listen", default="127.0.0.1:8816")
    admin_listen: Address = restated(ServiceSettings, "admin_listen", default="127.0.0.1:8826")
    metrics_listen: Address = restated(ServiceSettings, "metrics_listen", default="127.0.0.1:9826")

    root: RootPaths = setting(
        "Absolute path or URI below which the writer may store files. Set it so that the writer stores files itself; "
        "without a root it can only return them to the client. The query of a URI (after `?`) has the options of "
        "pyarrow.fs for reaching the storage. Repeat the option, or separate roots with commas.",
        default=(),
        unit="paths",
        common=True,
    )
    quota_bytes: int = setting(
        "Maximum bytes that the writer holds at once. A batch counts from the credit to send it until its encoding is "
        "stored. An eighth is kept for ten tenants that hold little. Set it if other programs use the same memory. 0 "
        "computes the quota from the container's memory limit and logs every term.",
        default=0,
        unit="bytes",
        ge=0,
        common=True,
    )
    max_open_files: int = setting(
        "Maximum number of open files. Further files are refused with RESOURCE_EXHAUSTED and a retry hint. Raise "
        "it, and the memory, for many small files. With 80 files or more, an eightieth is kept for each of ten "
        "tenants.",
        default=256,
        unit="files",
        ge=1,
    )
    max_batch_bytes: int = setting(
        "Maximum size of a batch that is larger than --max-message-bytes and comes in parts, such as a single row "
        "with a large text. Raise it if an error names it; --quota-bytes has to be at least twice as much.",
        default=1024 * MIB,
        unit="bytes",
        ge=MIB,
        le=2047 * MIB,
    )
    storage_silence_seconds: float = setting(
        "Fail a file when one storage operation (creating the file, writing a part, publishing) has not returned for "
        "this long. Lower it if tasks should find out sooner that a storage hangs. The operation cannot be "
        "interrupted: its memory stays reserved until it returns. 0 sets no limit.",
        default=1800.0,
        unit="seconds",
        ge=0,
    )
    encoder: Literal["auto", "cpu", "gpu"] = setting(
        "Where files are encoded. `auto`: on a GPU, if there is one and it will probably finish the file before the "
        "CPU. `gpu`: on the GPU, if it can encode the file; without a GPU the writer does not start. `cpu`: on "
        "the CPU. Set it to `gpu` to notice a missing driver, or to spare the CPU. Each receipt says why a "
        "file was encoded where it was.",
        default="auto",
        common=True,
    )
    gpu_memory_bytes: int = setting(
        "Maximum GPU memory that the writer uses. Set it if other programs use the same GPU. 0: 80 % of the "
        "memory that is free when the writer starts.",
        default=0,
        unit="bytes",
        ge=0,
    )
    sync_files: bool = setting(
        "Sync (fsync) each file on local or mounted storage, its directory, and new directories, before sending the "
        "receipt. `--no-sync-files` saves that time; set it only for data that can be made again, because a crash or "
        "power failure of the machine can then lose or truncate files that have receipts and that Spark has committed.",
        default=True,
    )


def reference() -> str:
    """Return the reference page of all settings, in Markdown."""
    return reference_page("updraft-writer", ServeSettings)


_OWN_VALUES = {"drain_timeout_seconds": "drainTimeoutSeconds", "root": "roots"}


def value_of(setting: str) -> str | None:
    """Return the chart's value for `setting`, as a path below `writer`; None if a writer has no such setting."""
    if setting in _OWN_VALUES:
        return _OWN_VALUES[setting]
    return f"settings.{camel_case(setting)}" if setting in ServeSettings.model_fields else None
