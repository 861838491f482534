# SPDX-License-Identifier: Apache-2.0
"""Batched functions of one number, for pools of tests."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from updraft.errors import ProtocolError, UserError
from updraft.functions import Batching
from updraft_server.worker.registered.functions import registry

NUMBERS = pa.schema([pa.field("number", pa.int64())])
RESULTS = pa.schema([pa.field("result", pa.int64())])


class Model:
    def __init__(self, call: Callable[[pa.Array], pa.Array]) -> None:
        self._call = call

    def joined(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._call(batch.column(0))], schema=RESULTS)

    def alone(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return self.joined(batch)
        except ValueError as error:
            raise UserError(str(error), exception_class="ValueError") from error

    def warm_up(self) -> None:
        return


@dataclasses.dataclass(frozen=True)
class Batched:
    name: str
    load: Callable[[], Model]
    batching: Batching
    version: str = "1"
    doc: str = "A model."
    argument_schema: pa.Schema = NUMBERS
    result_schema: pa.Schema = RESULTS
    deterministic: bool = True

    def checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not batch.schema.equals(self.argument_schema):
            raise ProtocolError(f"expected {self.argument_schema}")
        return batch


def add(name: str, call: Callable[[pa.Array], pa.Array], **batching: Any) -> None:
    registry.add(Batched(name, lambda: Model(call), Batching(**batching)))  # type: ignore[arg-type]
