# SPDX-License-Identifier: Apache-2.0
"""Choice of a file's encoder: the GPU's if there is one that supports everything the file needs, else the CPU's."""

from collections.abc import Callable
from functools import partial

import pyarrow as pa

from updraft.errors import WriteOptionError
from updraft.v1.write_pb2 import WriteCommand
from updraft_writer.encoders.encoder import Encoder
from updraft_writer.encoders.gpu import GpuEncoder
from updraft_writer.encoders.gpu_layouts import Layout, OrcLayout, ParquetLayout
from updraft_writer.encoders.orc import OrcEncoder
from updraft_writer.encoders.parquet import ParquetEncoder
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.reason import NotOnGpuError, Reason, ReasonKind


def choose_encoder(command: WriteCommand, schema: pa.Schema, gpu: Gpu | Reason, *, max_stripe_bytes: int) -> Encoder:
    """Return the encoder for `command`, with the reason for the choice; raises WriteOptionError."""
    footer = dict(command.footer)
    make_cpu: Callable[[], Encoder]
    make_layout: Callable[[], Layout]
    match command.WhichOneof("format"):
        case "parquet":
            make_cpu = partial(ParquetEncoder, schema, command.parquet, footer)
            make_layout = partial(ParquetLayout, schema, command.parquet, footer)
        case "orc":
            make_cpu = partial(OrcEncoder, schema, command.orc, footer, max_stripe_bytes=max_stripe_bytes)
            make_layout = partial(OrcLayout, schema, command.orc, footer, max_stripe_bytes=max_stripe_bytes)
        case _:
            raise WriteOptionError("the command names no format: give its options, parquet or orc")
    # Always create the CPU encoder: it refuses options and types that no encoder of this writer supports.
    encoder = make_cpu()
    if isinstance(gpu, Reason):
        encoder.reason = gpu
    elif gpu.lost is not None:
        encoder.reason = gpu.lost
    else:
        try:
            layout = make_layout()
            if not gpu.engine.has_codec(layout.plan):
                raise NotOnGpuError(ReasonKind.CODEC, f"the GPU's encoder has no codec {layout.plan.codec} here")
            return GpuEncoder(gpu, layout, make_cpu)
        except NotOnGpuError as error:
            encoder.reason = error.reason
    return encoder
