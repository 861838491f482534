# SPDX-License-Identifier: Apache-2.0
"""The quota that a writer takes when none is set, and the terms that it came from."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

_MIB = 1024 * 1024

# Allocators do not fill their pages, and the kernel counts what it keeps for this process.
_USABLE_FRACTION = 0.6
_LARGEST_FRACTION = 0.5
_SMALLEST_QUOTA_BYTES = 64 * _MIB
_RUNTIME_RESERVE_BYTES = 256 * _MIB
# What an open stream takes beside its batches, at least: buffers of gRPC, an encoder, a stream to the storage.
_SMALLEST_STREAM_BYTES = 20 * _MIB
# A batch lies in gRPC's buffers, in Python's and in Arrow's as it is received.
_COPIES_OF_A_BATCH = 3


@dataclass(frozen=True, slots=True)
class DefaultQuota:
    """A default quota and every term of it, for the log."""

    quota_bytes: int
    limit_bytes: int
    limited_by: str
    base_bytes: int
    runtime_reserve_bytes: int
    streams: int
    stream_bytes: int
    usable_fraction: float
    smallest_bytes: int
    largest_bytes: int

    def terms(self) -> dict[str, object]:
        """The terms by name."""
        return asdict(self)


def default_quota(limits: Mapping[str, int], *, base_bytes: int, streams: int, batch_bytes: int) -> DefaultQuota:
    """A share of what remains of the least of `limits` when the process and its streams have theirs.

    `base_bytes` is what the process takes before it holds anything, `streams` how many files are expected to be open
    at once, `batch_bytes` the size that their batches usually have.
    """
    limited_by = min(limits, key=lambda source: limits[source])
    limit_bytes = limits[limited_by]
    stream_bytes = max(_SMALLEST_STREAM_BYTES, _COPIES_OF_A_BATCH * batch_bytes)
    rest_bytes = limit_bytes - base_bytes - _RUNTIME_RESERVE_BYTES - streams * stream_bytes
    largest_bytes = int(_LARGEST_FRACTION * limit_bytes)
    return DefaultQuota(
        quota_bytes=min(max(int(_USABLE_FRACTION * rest_bytes), _SMALLEST_QUOTA_BYTES), largest_bytes),
        limit_bytes=limit_bytes,
        limited_by=limited_by,
        base_bytes=base_bytes,
        runtime_reserve_bytes=_RUNTIME_RESERVE_BYTES,
        streams=streams,
        stream_bytes=stream_bytes,
        usable_fraction=_USABLE_FRACTION,
        smallest_bytes=_SMALLEST_QUOTA_BYTES,
        largest_bytes=largest_bytes,
    )
