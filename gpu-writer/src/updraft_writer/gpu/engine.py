# SPDX-License-Identifier: Apache-2.0
"""What the writer asks of a library that encodes on a GPU, in plain data: nothing here knows that library.

`pylibcudf_engine` is what stands behind it; tests put a library of the CPU there, which proves everything but the GPU.
"""

import enum
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa


class DeviceError(Exception):
    """Raised when the device or its library failed; the file that was being encoded is lost unless it had not begun."""


class DeviceMemoryError(DeviceError):
    """Raised when the device has not enough memory for a table; the file is as it was before."""


@dataclass(frozen=True, slots=True)
class DeviceColumn:
    """A column as the device gets it, and what it is called and stored as; nested ones have their children below."""

    name: str
    data_type: pa.DataType
    nullable: bool = True
    children: tuple["DeviceColumn", ...] = ()
    is_map: bool = False
    is_binary: bool = False
    is_int96: bool = False
    precision: int | None = None

    @property
    def field(self) -> pa.Field:
        """The column in a schema of Arrow."""
        return pa.field(self.name, self.data_type, self.nullable)


class Statistics(enum.Enum):
    """Of what a file has minimum, maximum and null count."""

    NONE = "none"
    ROW_GROUPS = "row groups"
    PAGES = "pages"


class DictionaryPolicy(enum.Enum):
    """Which columns get a dictionary."""

    WHERE_SMALLER = "where smaller"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ParquetPlan:
    """A Parquet file as the device is to write it; `codec` by Arrow's name."""

    columns: tuple[DeviceColumn, ...]
    codec: str
    statistics: Statistics = Statistics.ROW_GROUPS
    dictionaries: DictionaryPolicy = DictionaryPolicy.WHERE_SMALLER
    page_bytes: int | None = None
    key_values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OrcPlan:
    """An ORC file as the device is to write it; `codec` by Arrow's name."""

    columns: tuple[DeviceColumn, ...]
    codec: str
    stripe_bytes: int
    row_index_stride: int


Plan = ParquetPlan | OrcPlan


class DeviceFile(Protocol):
    """One file on the device; it gives bytes to its output while it works, and has none after an error."""

    def write(self, table: pa.Table) -> None:
        """Encode a table as a row group of its own or more; raises DeviceMemoryError and DeviceError."""

    def close(self) -> None:
        """Write the footer; raises DeviceError."""


class GpuEngine(Protocol):
    """A library and the device that it works on."""

    @property
    def name(self) -> str:
        """The library, as receipts name it."""

    @property
    def memory_bytes(self) -> int:
        """What the library may take of the device's memory."""

    def has_codec(self, plan: Plan) -> bool:
        """Whether the codec of a plan can be written."""

    def open(self, plan: Plan, output: io.RawIOBase) -> DeviceFile:
        """A new file; raises DeviceMemoryError and DeviceError. `output` never raises."""

    def check(self) -> None:
        """Raise DeviceError if the device cannot be used any more."""
