# SPDX-License-Identifier: Apache-2.0
"""Batching options of a model: its batches and its processes."""

import dataclasses

_DEVICES = ("", "cuda")
_MOST_REPLICAS = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Batching:
    """Option that joins rows of many exchanges into batches, which separate model processes compute.

    Only these processes load the class, so all workers of a pool share one copy of it in memory, or one per replica.

    Raises:
        ValueError: A value is out of range.
    """

    rows: int = 512
    """Rows of a full batch: the most that the function gets at once."""
    wait_seconds: float = 0.01
    """How long rows may wait for others before the function gets a batch that is not full."""
    replicas: int = 1
    """Number of processes that each load a copy of the function; at most 32."""
    device: str = ""
    """"cuda" gives each replica one GPU of the pool in turn (CUDA_VISIBLE_DEVICES); empty leaves devices alone."""
    threads: int = 0
    """CPU threads for numerical libraries (OpenMP, OpenBLAS, MKL) that a model process itself loads, for example by an
    import in the constructor; 0 divides the machine's CPUs among the replicas."""
    timeout_seconds: float = 300.0
    """Time limit for one batch. A process that takes longer is killed and replaced; 0 sets no limit."""
    load_timeout_seconds: float = 600.0
    """Time limit for loading and `warm_up`; 0 sets no limit."""

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError("rows of Batching must be at least 1")
        if not 1 <= self.replicas <= _MOST_REPLICAS:
            raise ValueError(f"replicas of Batching must be from 1 to {_MOST_REPLICAS}")
        times = self.wait_seconds, self.timeout_seconds, self.load_timeout_seconds
        # `not all(... >= 0)` also refuses NaN.
        if self.threads < 0 or not all(seconds >= 0 for seconds in times):
            raise ValueError("wait_seconds, threads and the timeouts of Batching cannot be less than 0")
        if self.device not in _DEVICES:
            raise ValueError(f'device of Batching must be "" or "cuda", not {self.device!r}')
