# SPDX-License-Identifier: Apache-2.0
"""GPU of a writer: its library, its queue and whether it has failed."""

import importlib
import os
from dataclasses import dataclass
from typing import Literal

import structlog

from updraft_writer.gpu.admission import DeviceAdmission
from updraft_writer.gpu.costs import Costs
from updraft_writer.gpu.engine import DeviceError, GpuEngine
from updraft_writer.gpu.staging import Staging
from updraft_writer.reason import Reason, ReasonKind

# Environment variables that the GPU's library reads when it is loaded. With these values, the library copies from and
# to pinned memory. Also set the pool's largest size, because by default the pool may grow to 16 times its first size.
_PINNED_POOL, _LARGEST_PINNED_POOL = "LIBCUDF_PINNED_POOL_SIZE", "LIBCUDF_PINNED_POOL_MAX_SIZE"
_LIBRARY_SETTINGS = {
    "LIBCUDF_ALLOCATE_HOST_AS_PINNED_THRESHOLD": str(4 << 20),
    "LIBCUDF_KERNEL_PINNED_COPY_THRESHOLD": str(64 << 10),
}
_LARGEST_PINNED_POOL_BYTES = 2 << 30
_PINNED_FRACTION = 1 / 8

Wanted = Literal["auto", "cpu", "gpu"]

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Gpu:
    """Device that encodes files, and the pinned memory from which the device copies them.

    Once the device has failed, `lost` contains the reason. With `costs`, a file moves to the CPU if the CPU is expected
    to encode it sooner.
    """

    engine: GpuEngine
    admission: DeviceAdmission
    staging: Staging
    costs: Costs | None = None
    lost: Reason | None = None

    def examine(self) -> None:
        """Check after an error whether the device can still be used. An error of the driver is permanent."""
        try:
            self.engine.check()
        except DeviceError as error:
            self.lost = Reason(ReasonKind.DEVICE_FAILED, f"the GPU failed and is no longer used: {error}")
            _log.error("the GPU failed: files are encoded on the CPU until the writer restarts", error=str(error))


def described(gpu: Gpu | Reason) -> str:
    """Return a line for the log that says where files are encoded."""
    if isinstance(gpu, Reason):
        return str(gpu)
    return str(gpu.lost or f"gpu: {gpu.engine.name} with {gpu.engine.memory_bytes} bytes of the GPU's memory")


def set_up_library(limit_bytes: int) -> int:
    """Set the variables of the GPU's library for a process that may use `limit_bytes` of memory.

    Variables that are already set stay unchanged. Return the size of the library's pinned memory. Call this before
    `find_engine`.
    """
    pool_bytes = min(_LARGEST_PINNED_POOL_BYTES, int(_PINNED_FRACTION * limit_bytes))
    for name, value in {_PINNED_POOL: str(pool_bytes), **_LIBRARY_SETTINGS}.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault(_LARGEST_PINNED_POOL, os.environ[_PINNED_POOL])
    try:
        return int(os.environ[_LARGEST_PINNED_POOL])
    except ValueError:
        # The library treats an invalid value as 0.
        return 0


def find_engine(wanted: Wanted, *, memory_bytes: int) -> GpuEngine | Reason:
    """Return the engine of the first device, or the reason why it cannot be used.

    Installed packages do not prove that there is a device, so this function asks the driver. `memory_bytes` is the
    device memory that the engine may use; 0 uses a share of the free memory.
    """
    if wanted == "cpu":
        return Reason(ReasonKind.ASKED, "this writer was started with --encoder cpu")
    try:
        devices = int(importlib.import_module("rmm._cuda.gpu").getDeviceCount())
    except ImportError as error:
        return Reason(ReasonKind.NOT_INSTALLED, f"updraft-writer[gpu] is not installed: {error}")
    # The driver raises different exceptions for a missing device.
    except Exception as error:
        return Reason(ReasonKind.NO_DEVICE, f"found no GPU with a CUDA 13 driver: {error}")
    if devices == 0:
        return Reason(ReasonKind.NO_DEVICE, "this machine has no GPU")
    try:
        engine: GpuEngine = importlib.import_module("updraft_writer.gpu.pylibcudf_engine").open_engine(memory_bytes)
        engine.check()
    except ImportError as error:
        return Reason(ReasonKind.NOT_INSTALLED, f"updraft-writer[gpu] is not installed: {error}")
    except Exception as error:
        return Reason(ReasonKind.DEVICE_FAILED, f"the GPU cannot be used: {error}")
    return engine
