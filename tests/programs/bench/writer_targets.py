# SPDX-License-Identifier: Apache-2.0
"""Targets of the writer's benchmark: measured ratios, with the least allowed value of each ratio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.programs.bench.writer_record import Measured

_ASYNCHRONOUS = 1.3
_SPARK = 1.5
_ENCODER = 1.7
# The target is lower without delta encodings, because integers and strings then take more time and more bytes.
_COMPATIBLE_ENCODER = 1.3


@dataclass(frozen=True)
class Promise:
    """Measured ratio with its least allowed value."""

    title: str
    ratio: float
    target: float

    @property
    def is_kept(self) -> bool:
        return self.ratio >= self.target


def promises(measured: Sequence[Measured]) -> Iterator[Promise]:
    """Yield the promises: asynchronous over synchronous, writer over Spark's, our encoder over pyarrow's default."""
    for (case, quota_mib), found in variants(measured).items():
        match case.split():
            case ["slow", "sink"]:
                ratio = found["synchronous"].median_wall_s / found["asynchronous"].median_wall_s
                yield Promise(f"asynchronous against synchronous, slow sink, {quota_mib} MiB", ratio, _ASYNCHRONOUS)
            case ["query", "of", *_]:
                for variant, way in (("updraft", "TCP"), ("updraft unix", "a Unix socket")):
                    ratio = found["spark"].median_wall_s / found[variant].median_wall_s
                    yield Promise(f"against Spark's own Parquet writer, {case}, over {way}", ratio, _SPARK)
            # Snappy is pyarrow's own default codec.
            case ["mixed", "snappy"]:
                for variant, encodings, target in (
                    ("compact", "compact encodings", _ENCODER),
                    ("updraft", "compatible encodings", _COMPATIBLE_ENCODER),
                ):
                    if ours := found.get(variant):
                        ratio = _speed_up(found["pyarrow"], ours)
                        title = f"the encoder with {encodings} against pyarrow's default, file no larger"
                        yield Promise(title, ratio, target)


def _speed_up(base: Measured, ours: Measured) -> float:
    # A higher speed with a larger file does not count.
    return base.median_cpu_s / ours.median_cpu_s if ours.file_bytes <= base.file_bytes else 0.0


def variants(measured: Sequence[Measured]) -> dict[tuple[str, int], dict[str, Measured]]:
    """Return the variants by name, for each case and quota, in the order of measurement."""
    found: dict[tuple[str, int], dict[str, Measured]] = {}
    for entry in measured:
        found.setdefault((entry.case, entry.quota_mib), {})[entry.variant] = entry
    return found
