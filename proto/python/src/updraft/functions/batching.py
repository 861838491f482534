# SPDX-License-Identifier: Apache-2.0
"""What the author of a model says about its batches and its processes."""

import dataclasses

_DEVICES = ("", "cuda")
_MOST_REPLICAS = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Batching:
    """Have rows of many exchanges joined into batches, in processes of the function's own.

    The class is loaded in such a process and nowhere else: all workers of a pool share one copy of its memory, or as
    many as there are `replicas`. Raises ValueError for values that make no sense.
    """

    rows: int = 512
    """Rows of a full batch: the function gets no more at once."""
    wait_seconds: float = 0.01
    """How long rows may wait for others before the function gets a batch that is not full."""
    replicas: int = 1
    """Processes that load the function, each with a copy of its own; at most 32."""
    device: str = ""
    """"cuda" lets each replica see one GPU of the pool's, the next one for each next replica (CUDA_VISIBLE_DEVICES)."""
    threads: int = 0
    """CPU threads for numerical libraries (OpenMP, OpenBLAS, MKL) that a process loads itself, such as by an import in
    the constructor; 0 divides the machine's CPUs among the replicas."""
    timeout_seconds: float = 300.0
    """How long the function may work on one batch. A process that takes longer is ended and replaced; 0 is no limit."""
    load_timeout_seconds: float = 600.0
    """How long loading and `warm_up` may take; 0 is no limit."""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError("rows of Batching must be at least 1")
        if not 1 <= self.replicas <= _MOST_REPLICAS:
            raise ValueError(f"replicas of Batching must be from 1 to {_MOST_REPLICAS}")
        times = self.wait_seconds, self.timeout_seconds, self.load_timeout_seconds
        # What is not a number is not less than one either.
        if self.threads < 0 or not all(seconds >= 0 for seconds in times):
            raise ValueError("wait_seconds, threads and the timeouts of Batching cannot be less than 0")
        if self.device not in _DEVICES:
            raise ValueError(f'device of Batching must be "" or "cuda", not {self.device!r}')
