# SPDX-License-Identifier: Apache-2.0
"""Cost model: whether the GPU or a CPU thread encodes a row group sooner. Pure policy, without a device.

`make bench-gpu` measures the constants and writes them in the format of `costs.json`. Row groups share an encoder: if
more row groups wait than the encoder runs in parallel, each row group takes proportionally longer.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Self

import pyarrow as pa

# Codec and kind of column whose costs replace those of unmeasured codecs and kinds.
_USUAL_CODEC, _OTHER = "snappy", "other"
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Load:
    """Row groups that are being encoded or wait for their turn."""

    on_cpu: int = 0
    on_gpu: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds until a row group is encoded, by the GPU and by the CPU."""

    cpu_seconds: float
    gpu_seconds: float

    @property
    def gpu_is_sooner(self) -> bool:
        """Whether the GPU is expected to finish first."""
        return self.gpu_seconds < self.cpu_seconds

    def __str__(self) -> str:
        seconds = f"{self.gpu_seconds:.3f} s on the GPU, {self.cpu_seconds:.3f} s on the CPU"
        return f"its first row group is expected to take {seconds}"


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured constants, by codec and by kind of column."""

    machine: str
    """Machine and date of the measurement."""
    cpu_seconds_per_gb: Mapping[str, Mapping[str, float]]
    """Seconds that one thread needs for a gigabyte of raw bytes."""
    gpu_seconds_per_gb: Mapping[str, Mapping[str, float]]
    """Seconds that one file, alone on the GPU, needs for a gigabyte of raw bytes, copies included."""
    gpu_seconds_per_write: Mapping[str, float]
    """Additional seconds for each row group on the GPU, independent of the row group's size: the codec's kernel."""
    cpu_threads: float
    """Speed of all threads of a writer together, as a multiple of the speed of one thread."""
    gpu_files: float
    """Speed of several files at once on the GPU, as a multiple of the speed of one file."""

    @classmethod
    def measured(cls) -> Self:
        """Return the constants that are shipped with the writer."""
        return cls(**json.loads(files(__package__).joinpath("costs.json").read_text()))

    def estimate(self, raw_bytes: Mapping[str, int], codec: str, load: Load, *, threads: int) -> Estimate:
        """Estimate the times for `raw_bytes` by kind of column, if the CPU's encoder has `threads` threads."""
        cpu = _seconds(self.cpu_seconds_per_gb, codec, raw_bytes)
        gpu = _seconds(self.gpu_seconds_per_gb, codec, raw_bytes)
        gpu += self.gpu_seconds_per_write.get(codec, self.gpu_seconds_per_write[_USUAL_CODEC])
        return Estimate(
            cpu * max(1.0, (load.on_cpu + 1) / min(threads, self.cpu_threads)),
            gpu * max(1.0, (load.on_gpu + 1) / self.gpu_files),
        )


def bytes_by_kind(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    """Return the bytes of a row group's columns, by the kind of their values."""
    found: Counter[str] = Counter()
    for batch in batches:
        for column in batch.columns:
            found[_kind(column.type)] += column.nbytes
    return found


def _kind(data_type: pa.DataType) -> str:
    if pa.types.is_integer(data_type):
        return "integers"
    if pa.types.is_floating(data_type):
        return "floats"
    if pa.types.is_date(data_type) or pa.types.is_timestamp(data_type):
        return "times"
    if pa.types.is_decimal(data_type):
        return "decimals"
    is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
    return "texts" if is_text else _OTHER


def _seconds(per_gb: Mapping[str, Mapping[str, float]], codec: str, raw_bytes: Mapping[str, int]) -> float:
    costs = per_gb.get(codec, per_gb[_USUAL_CODEC])
    return sum(size / _GB * costs.get(kind, costs[_OTHER]) for kind, size in raw_bytes.items())
