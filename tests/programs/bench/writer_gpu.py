# SPDX-License-Identifier: Apache-2.0
"""`make bench-gpu`: raw bytes encoded per second on the GPU, compared with the CPU and with the limit set by copies.

An encoder copies raw bytes to the GPU and encoded bytes back, so no GPU encoder can be faster than the first copy. The
program also measures the GPU memory that a row group needs as a multiple of its raw bytes; `WORKING_SET_FACTOR` of
`gpu/admission.py` should exceed this multiple.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.programs.bench import writer_costs
from tests.programs.bench.writer_tables import mixed
from updraft.container_memory import memory_limits
from updraft.v1.write_pb2 import Compression, OrcOptions, ParquetOptions, TimestampType, WriteCommand
from updraft_writer.file_factory import choose_encoder
from updraft_writer.gpu.admission import DeviceAdmission, DeviceLimits
from updraft_writer.gpu.gpu import Gpu, find_engine, set_up_library
from updraft_writer.gpu.staging import Staging
from updraft_writer.reason import Reason, ReasonKind

_COPIED_BYTES = 256 << 20
_CPU = Reason(ReasonKind.ASKED, "the CPU, to compare with")


def main() -> None:
    """Measure everything and write the results as JSON."""
    parser = argparse.ArgumentParser(prog="make bench-gpu", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000, help="rows of the table (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=5, help="counted runs of each case (default: %(default)s)")
    parser.add_argument(
        "--costs", type=Path, default=Path("build/bench/writer-gpu-costs.json"), help="constants of auto"
    )
    parser.add_argument("--stand-in", action="store_true", help="try this program without a GPU: pyarrow plays it")
    parser.add_argument("--output", type=Path, default=Path("build/bench/writer-gpu.json"))
    options = parser.parse_args()
    if options.stand_in:
        _try_costs(options)
        return
    set_up_library(min(memory_limits().values()))
    engine = find_engine("gpu", memory_bytes=0)
    if isinstance(engine, Reason):
        sys.exit(f"error: no GPU here: {engine.text}")
    gpu = Gpu(engine, DeviceAdmission(DeviceLimits(engine.memory_bytes)), Staging(engine.pinned))
    table = mixed(options.rows).combine_chunks()
    measured = {"device": _device(), "raw_bytes": table.nbytes, "copies_gb_per_s": dict(_copies(options.repeat))}
    measured["encoders"] = cases = list(_encoders(gpu, table, options.repeat))
    measured["working_set"] = max(case["working_set"] for case in cases if "working_set" in case)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(measured, indent=1) + "\n")
    _measure_costs(gpu, measured["device"]["name"], options)
    for name, speed in measured["copies_gb_per_s"].items():
        print(f"{name:30} {speed:8.2f} GB/s")
    for case in cases:
        file_mb = case["file_bytes"] / 1e6
        print(f"{case['case']:16} {case['encoder']:18} {case['gb_per_s']:8.3f} GB/s {file_mb:9.1f} MB")
    print(f"working set: {measured['working_set']:.2f} times the raw bytes; written to {options.output}")


def _measure_costs(gpu: Gpu, device: str, options: argparse.Namespace) -> None:
    """Measure the cost model's constants, print them, and write them for `gpu/costs.json`."""
    machine = f"one {device}, {os.cpu_count()} cores"
    costs = writer_costs.measure(gpu, machine=machine, rows=options.rows // 2, repeat=options.repeat)
    options.costs.parent.mkdir(parents=True, exist_ok=True)
    options.costs.write_text(json.dumps(writer_costs.as_json(costs), indent=1) + "\n")
    print(*writer_costs.described(costs), sep="\n")


def _try_costs(options: argparse.Namespace) -> None:
    # This module is in gpu-writer/tests, which must be on PYTHONPATH.
    from device_for_tests import DeviceForTests, gpu_of

    codecs = tuple(codec.lower() for codec in writer_costs.CODECS)
    _measure_costs(gpu_of(DeviceForTests(codecs=codecs)), "stand-in", options)


def _encoders(gpu: Gpu, table: pa.Table, repeat: int) -> Iterator[dict[str, Any]]:
    for codec in writer_costs.CODECS:
        compression = Compression(codec=f"CODEC_{codec}")
        micros = TimestampType.TIMESTAMP_TYPE_MICROS
        commands = {
            "parquet": WriteCommand(parquet=ParquetOptions(compression=compression, timestamps=micros)),
            "orc": WriteCommand(orc=OrcOptions(compression=compression)),
        }
        for name, command in commands.items():
            # ORC has no timestamps with a time zone, and the GPU encodes no booleans and floats for ORC.
            rows = table.drop_columns(["at", "flag", "amount", "score"]) if name == "orc" else table
            for where in (gpu, _CPU):
                yield {"case": f"{name} {codec.lower()}", **_encoded(where, command, rows, repeat)}


def _encoded(where: Gpu | Reason, command: WriteCommand, table: pa.Table, repeat: int) -> dict[str, Any]:
    measured: dict[str, Any] = {}
    walls = []
    # Do not count the first run, which loads kernels and fills pools.
    for run in range(repeat + 1):
        encoder = choose_encoder(command, table.schema, where, max_stripe_bytes=64 << 20)
        with _Peak(where) as peak:
            started = time.perf_counter()
            size = sum(map(len, encoder.write(table) + encoder.close()))
            wall = time.perf_counter() - started
        if isinstance(where, Gpu):
            assert encoder.on_gpu, f"the file left the GPU: {encoder.reason}"
            measured["working_set"] = round(peak.bytes / table.nbytes, 3)
        if run:
            walls.append(round(wall, 4))
        measured |= {"encoder": encoder.name, "file_bytes": size}
    return {**measured, "wall_s": walls, "gb_per_s": round(table.nbytes / 1e9 / statistics.median(walls), 3)}


class _Peak:
    """Context manager that records the largest use of GPU memory in its block."""

    bytes = 0

    def __init__(self, where: Gpu | Reason) -> None:
        self._is_gpu = isinstance(where, Gpu)

    def __enter__(self) -> _Peak:
        if self._is_gpu:
            import rmm

            self._before = rmm.mr.get_current_device_resource()
            self._counting = rmm.mr.StatisticsResourceAdaptor(self._before)
            rmm.mr.set_current_device_resource(self._counting)
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_gpu:
            import rmm

            self.bytes = int(self._counting.allocation_counts.peak_bytes)
            rmm.mr.set_current_device_resource(self._before)


def _device() -> dict[str, Any]:
    from cuda.bindings import runtime

    properties = _checked(runtime.cudaGetDeviceProperties(0))
    return {"name": properties.name.decode().rstrip("\0"), "driver": _checked(runtime.cudaDriverGetVersion())}


def _copies(repeat: int) -> Iterator[tuple[str, float]]:
    """Yield gigabytes per second in each direction, for pinned and for pageable memory."""
    from cuda.bindings import runtime

    kinds = runtime.cudaMemcpyKind
    device = _checked(runtime.cudaMalloc(_COPIED_BYTES))
    pinned = _checked(runtime.cudaMallocHost(_COPIED_BYTES))
    pageable = np.ones(_COPIED_BYTES, np.uint8)
    try:
        for memory, host in (("pinned", int(pinned)), ("pageable", pageable.ctypes.data)):
            to_device = (device, host, kinds.cudaMemcpyHostToDevice)
            to_host = (host, device, kinds.cudaMemcpyDeviceToHost)
            for way, (target, source, kind) in (("host to device", to_device), ("device to host", to_host)):
                copy = lambda target=target, source=source, kind=kind: _checked(  # noqa: E731
                    runtime.cudaMemcpy(target, source, _COPIED_BYTES, kind)
                )
                yield f"{way}, {memory}", round(_COPIED_BYTES / 1e9 / _median_seconds(copy, repeat), 3)
    finally:
        _checked(runtime.cudaFreeHost(pinned))
        _checked(runtime.cudaFree(device))


def _median_seconds(step: Callable[[], Any], repeat: int) -> float:
    seconds = []
    for _ in range(repeat + 1):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[1:])


def _checked(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if status.value:
        raise RuntimeError(f"CUDA says {status.name}")
    return values[0] if values else None


if __name__ == "__main__":
    main()
