# SPDX-License-Identifier: Apache-2.0
"""The interface of a library that encodes on a GPU, in plain data: nothing here knows a library.

`pylibcudf_engine` implements it. Tests implement it on the CPU, which proves everything but the GPU.
"""

import enum
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa


class DeviceError(Exception):
    """Raised when the device or its library failed. Only a file that has not begun can still move to the CPU."""


class DeviceMemoryError(DeviceError):
    """Raised when the device has too little memory for a table. The file is unchanged."""


@dataclass(frozen=True, slots=True)
class DeviceColumn:
    """A column as the device receives it, with its name and stored type; nested columns have `children`."""

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
        """The column as a field of an Arrow schema."""
        return pa.field(self.name, self.data_type, self.nullable)


class Statistics(enum.Enum):
    """At which level a file has minimum, maximum and null count."""

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
    """How the device should write a Parquet file; `codec` is Arrow's name."""

    columns: tuple[DeviceColumn, ...]
    codec: str
    statistics: Statistics = Statistics.ROW_GROUPS
    dictionaries: DictionaryPolicy = DictionaryPolicy.WHERE_SMALLER
    page_bytes: int | None = None
    key_values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OrcPlan:
    """How the device should write an ORC file; `codec` is Arrow's name."""

    columns: tuple[DeviceColumn, ...]
    codec: str
    stripe_bytes: int
    row_index_stride: int


Plan = ParquetPlan | OrcPlan


class DeviceFile(Protocol):
    """One file on the device. It passes bytes to its output as it goes. After an error it cannot be used."""

    def write(self, table: pa.Table) -> None:
        """Encode a table as one or more row groups of its own; raises DeviceMemoryError and DeviceError."""

    def close(self) -> None:
        """Write the footer; raises DeviceError."""


class GpuEngine(Protocol):
    """A library and the device that it works on."""

    name: str
    """The library, as receipts name it."""
    memory_bytes: int
    """Device memory that the library may use."""

    def has_codec(self, plan: Plan) -> bool:
        """Whether the codec of a plan can be written."""

    def open(self, plan: Plan, output: io.RawIOBase) -> DeviceFile:
        """A new file; raises DeviceMemoryError and DeviceError. `output` never raises."""

    def check(self) -> None:
        """Raise DeviceError if the device cannot be used any more."""
