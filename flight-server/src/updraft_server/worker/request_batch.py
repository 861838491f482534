# SPDX-License-Identifier: Apache-2.0
"""Batch of a request with its group ends, as proto/README.md ("Groups") defines them."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa

from updraft.errors import ProtocolError
from updraft.v1 import exchange_pb2


class RequestBatch(NamedTuple):
    """Checked batch of a request."""

    batch: pa.RecordBatch
    group_ends: Sequence[int] = ()
    """Row offsets before which a group ends, in order."""
    input: int = 0
    """Side of a cogroup: 0 is the left one, 1 the right one."""


def check_input(metadata: exchange_pb2.RequestMetadata, inputs: int) -> None:
    """Raise ProtocolError if the batch belongs to an input that the function does not have."""
    if metadata.input >= inputs:
        raise ProtocolError(
            f"batch {metadata.sequence} is of input {metadata.input}, but the function has inputs 0 to {inputs - 1}"
        )


def checked_ends(metadata: exchange_pb2.RequestMetadata, rows: int, *, takes_groups: bool) -> Sequence[int]:
    """Return the group ends of a batch that has `rows` rows; raises ProtocolError."""
    ends = list(metadata.group_ends)
    if not ends:
        return ends
    if not takes_groups:
        raise ProtocolError(f"batch {metadata.sequence} has group ends, but the function takes no groups")
    if ends[-1] > rows or any(end < before for before, end in pairwise(ends)):
        raise ProtocolError(
            f"the group ends of batch {metadata.sequence} are not offsets up to its {rows} rows in order"
        )
    return ends
