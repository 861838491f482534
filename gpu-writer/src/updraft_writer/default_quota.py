# SPDX-License-Identifier: Apache-2.0
"""Default quota, used when none is set, and the terms from which it is computed."""

from collections.abc import Mapping
from dataclasses import dataclass

_MIB = 1024 * 1024

# Allocators leave parts of their pages unused, and the kernel's memory for this process counts towards the limit too.
_USABLE_FRACTION = 0.6
_LARGEST_FRACTION = 0.5
_SMALLEST_QUOTA_BYTES = 64 * _MIB
_RUNTIME_RESERVE_BYTES = 256 * _MIB
# Least memory of an open stream in addition to its batches: gRPC's buffers, an encoder, a stream to the storage.
_SMALLEST_STREAM_BYTES = 20 * _MIB
# A pod writes for some executors with a few tasks each, and each task has one file open at a time. Every open file
# beyond this number takes memory that is not part of the quota; `--max-open-files` limits them.
EXPECTED_OPEN_FILES = 16
# Size of the batches that the connector sends, and the Python client by default.
EXPECTED_BATCH_BYTES = 4 * _MIB
# A batch that is being received is in gRPC's, Python's and Arrow's buffers at once.
_COPIES_OF_A_BATCH = 3


@dataclass(frozen=True, slots=True)
class DefaultQuota:
    """Default quota and every term of its computation, for the log."""

    quota_bytes: int
    limit_bytes: int
    limited_by: str
    base_bytes: int
    streams: int
    stream_bytes: int
    largest_bytes: int
    runtime_reserve_bytes: int = _RUNTIME_RESERVE_BYTES
    usable_fraction: float = _USABLE_FRACTION
    smallest_bytes: int = _SMALLEST_QUOTA_BYTES


def stream_bytes(batch_bytes: int = EXPECTED_BATCH_BYTES) -> int:
    """Return the memory of an open stream in addition to its batches, which typically have `batch_bytes`."""
    return max(_SMALLEST_STREAM_BYTES, _COPIES_OF_A_BATCH * batch_bytes)


def default_quota(
    limits: Mapping[str, int],
    *,
    base_bytes: int,
    streams: int = EXPECTED_OPEN_FILES,
    batch_bytes: int = EXPECTED_BATCH_BYTES,
) -> DefaultQuota:
    """Compute the quota: a share of what the process and its streams leave of the smallest of `limits`.

    `base_bytes` is the memory of the idle process, `streams` the number of files expected to be open at once, and
    `batch_bytes` the typical size of their batches.
    """
    limited_by = min(limits, key=lambda source: limits[source])
    limit_bytes = limits[limited_by]
    each_bytes = stream_bytes(batch_bytes)
    rest_bytes = limit_bytes - base_bytes - _RUNTIME_RESERVE_BYTES - streams * each_bytes
    largest_bytes = int(_LARGEST_FRACTION * limit_bytes)
    return DefaultQuota(
        quota_bytes=min(max(int(_USABLE_FRACTION * rest_bytes), _SMALLEST_QUOTA_BYTES), largest_bytes),
        limit_bytes=limit_bytes,
        limited_by=limited_by,
        base_bytes=base_bytes,
        streams=streams,
        stream_bytes=each_bytes,
        largest_bytes=largest_bytes,
    )
