# SPDX-License-Identifier: Apache-2.0
"""Interface to a library that encodes on a GPU. The interface uses plain data and no types of the library.

`pylibcudf_engine` implements the interface. Tests implement it on the CPU, which covers everything but the GPU.
"""

import enum
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

# Digits of a decimal that fit into an integer of 32 and of 64 bits.
_INT32_DIGITS, _INT64_DIGITS = 9, 18


class DeviceError(Exception):
    """Raised when the device or its library fails. A file can still move to the CPU if none of it has been written."""


class DeviceMemoryError(DeviceError):
    """Raised when the device has too little memory for a table. The file is unchanged."""


@dataclass(frozen=True, slots=True)
class DeviceColumn:
    """Column as the device receives it, with its name and type; nested columns have `children`."""

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
        """Field of the column in an Arrow schema."""
        return pa.field(self.name, self.data_type, self.nullable)

    @property
    def narrow_bits(self) -> int | None:
        """Bits to which the device narrows a decimal before storing it; None for other columns.

        The library stores the decimal with this width. Spark stores a decimal as narrow as its precision allows.
        """
        if self.precision is None or self.precision > _INT64_DIGITS:
            return None
        return 32 if self.precision <= _INT32_DIGITS else 64


class Statistics(enum.Enum):
    """Level at which a file stores minimum, maximum and null count."""

    NONE = "none"
    ROW_GROUPS = "row groups"
    PAGES = "pages"


class DictionaryPolicy(enum.Enum):
    """Rule that selects the columns with a dictionary."""

    WHERE_SMALLER = "where smaller"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ParquetPlan:
    """Settings for a Parquet file that the device writes; `codec` is Arrow's name."""

    columns: tuple[DeviceColumn, ...]
    codec: str
    statistics: Statistics = Statistics.ROW_GROUPS
    dictionaries: DictionaryPolicy = DictionaryPolicy.WHERE_SMALLER
    page_bytes: int | None = None
    row_group_bytes: int | None = None
    """Size at which the rows of one `write` are cut into row groups; None makes a single row group."""
    encodings: Mapping[str, str] = field(default_factory=dict)
    """Parquet's names of encodings, by top-level column. The library chooses the encodings of columns that are not
    listed.
    """
    key_values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OrcPlan:
    """Settings for an ORC file that the device writes; `codec` is Arrow's name."""

    columns: tuple[DeviceColumn, ...]
    codec: str
    stripe_bytes: int
    row_index_stride: int


Plan = ParquetPlan | OrcPlan


class DeviceFile(Protocol):
    """File encoded on the device, which writes its bytes to its output as they are encoded.

    After an error other than DeviceMemoryError the file cannot be used.
    """

    def write(self, parts: Iterable[pa.Table]) -> None:
        """Encode the rows of all parts as one or more row groups; raises DeviceMemoryError and DeviceError.

        Copy each part before asking for the next one, because `parts` then reuses the part's memory.
        """

    def close(self) -> None:
        """Write the footer; raises DeviceError."""


class GpuEngine(Protocol):
    """GPU library and the device that it uses."""

    name: str
    """Name of the library in receipts."""
    memory_bytes: int
    """Device memory that the library may use."""

    def has_codec(self, plan: Plan) -> bool:
        """Return whether the library can write the plan's codec."""

    def pinned(self, size: int) -> memoryview:
        """Return memory, never freed, from which the device copies at full speed. Raises DeviceMemoryError."""

    def open(self, plan: Plan, output: io.RawIOBase) -> DeviceFile:
        """Open a new file; raises DeviceMemoryError and DeviceError. `output` must never raise."""

    def check(self) -> None:
        """Raise DeviceError if the device can no longer be used."""
