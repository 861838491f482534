# SPDX-License-Identifier: Apache-2.0
"""Functions that use a GPU, in workers and in model processes. Only the processes that call them load CUDA."""

import os

from updraft import function
from updraft.functions import Batching, NumPy

HELD_BYTES = 2 << 30


def _held() -> object:
    import torch

    return torch.ones(HELD_BYTES, dtype=torch.uint8, device="cuda")


@function(name="worker_holds")
class WorkerHolds:
    """Memory of the GPU in each worker; answers with the worker's number."""

    def __init__(self) -> None:
        self._memory = _held()

    def __call__(self, number: int) -> int:
        return os.getpid()


@function(name="model_holds", batching=Batching(device="cuda"))
class ModelHolds:
    """Function that holds GPU memory in a model process."""

    def __init__(self) -> None:
        self._memory = _held()

    def __call__(self, number: NumPy[int]) -> NumPy[int]:
        return number * 0 + os.getpid()


@function(name="breaks", batching=Batching(device="cuda"))
class Breaks:
    """A negative number is an index that a kernel refuses: CUDA fails in this process from then on."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._values = torch.arange(100, device="cuda")

    def __call__(self, number: NumPy[int]) -> NumPy[int]:
        try:
            return (
                self._values[self._torch.as_tensor(number * 1000 * (number < 0) + number, device="cuda")].cpu().numpy()
            )
        except self._torch.AcceleratorError:
            os._exit(1)


@function(name="device_of", batching=Batching(device="cuda", replicas=2, rows=1))
class DeviceOf:
    """How many GPUs each of two replicas sees."""

    def __init__(self) -> None:
        import torch

        self._count = torch.cuda.device_count()
        torch.ones(1, device="cuda")

    def __call__(self, number: NumPy[int]) -> NumPy[int]:
        return number * 0 + self._count
