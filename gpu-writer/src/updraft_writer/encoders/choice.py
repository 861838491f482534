# SPDX-License-Identifier: Apache-2.0
"""Which encoder writes a file, and the reason, which its receipt tells."""

import importlib
from typing import NamedTuple

import pyarrow as pa

from updraft.errors import WriteOptionError
from updraft.v1.write_pb2 import WriteCommand
from updraft_writer.encoders.encoder import Encoder
from updraft_writer.encoders.orc import OrcEncoder
from updraft_writer.encoders.parquet import ParquetEncoder


class Chosen(NamedTuple):
    """An encoder for one file and why it is that one."""

    encoder: Encoder
    reason: str


def choose_encoder(command: WriteCommand, schema: pa.Schema, gpu: str, *, max_stripe_bytes: int) -> Chosen:
    """The encoder for what `command` asks; `gpu` is the answer of `gpu_probe`. Raises WriteOptionError."""
    footer = dict(command.footer)
    match command.WhichOneof("format"):
        case "parquet":
            return Chosen(ParquetEncoder(schema, command.parquet, footer), gpu)
        case "orc":
            return Chosen(OrcEncoder(schema, command.orc, footer, max_stripe_bytes=max_stripe_bytes), gpu)
        case _:
            raise WriteOptionError("the command names no format: give its options, parquet or orc")


def gpu_probe() -> str:
    """Why files are encoded on the CPU, asked of the driver and not of what happens to be installed."""
    try:
        devices = int(importlib.import_module("rmm._cuda.gpu").getDeviceCount())
    except ImportError:
        return "cpu: RMM is not installed, so no GPU can be asked for"
    # Each of the driver's ways to say that there is none is an exception of its own.
    except Exception as error:
        return f"cpu: the driver gives no GPU: {error}"
    if devices == 0:
        return "cpu: this machine has no GPU"
    return f"cpu: {devices} GPUs are there, but this version has no encoder for them"
