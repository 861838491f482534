# SPDX-License-Identifier: Apache-2.0
"""Factory that makes the file for a command: its encoder, its sink, and the rule for cutting its row groups."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import pyarrow as pa

from updraft.errors import SinkError, WriteOptionError
from updraft.service.spans import Span
from updraft.v1.write_pb2 import Delivery, WriteCommand
from updraft_writer.encoders.encoder import Encoder
from updraft_writer.encoders.gpu import GpuEncoder
from updraft_writer.encoders.gpu_layouts import Layout, OrcLayout, ParquetLayout
from updraft_writer.encoders.option_limits import filters_from_start_bytes, filters_of_row_group_bytes
from updraft_writer.encoders.orc import DEFAULT_STRIPE_BYTES, OrcEncoder
from updraft_writer.encoders.parquet import DEFAULT_ROW_GROUP_BYTES, ParquetEncoder
from updraft_writer.gpu.gpu import Gpu
from updraft_writer.open_file import OpenFile, Shape
from updraft_writer.open_files import OpenFiles, Place
from updraft_writer.pieces import Blocks
from updraft_writer.quota import Quota, Reservation
from updraft_writer.reason import NotOnGpuError, Reason, ReasonKind
from updraft_writer.replies import Replies, ReturnedSink
from updraft_writer.request import WriteRequest
from updraft_writer.settings import ServeSettings
from updraft_writer.sinks.roots import Roots
from updraft_writer.sinks.sink import Sink, Standing, Storage
from updraft_writer.sinks.stored import RetryPolicy, StoredSink

# Number of threads for storage operations. An operation uses no CPU while it waits for the storage, and this many
# threads keep a fast object store busy. A thread that hangs stays unavailable until its storage answers, so this number
# has to be far above the usual number of open files.
STORE_THREADS = 64
# Fewest row groups that a GPU encodes at once, each on its own CUDA stream. With fewer, the GPU idles during copies.
_LEAST_GPU_THREADS = 4
_MAX_ROW_GROUP_ROWS = 1 << 31
_UNASKED_FILTER_BYTES = 1 << 20


class FileFactory:
    """Factory of files. `storage` finds the storage for a path; tests replace `storage`."""

    def __init__(self, quota: Quota, files: OpenFiles, gpu: Gpu | Reason, settings: ServeSettings) -> None:
        self.storage: Callable[..., Storage] = Roots(settings.root, sync_files=settings.sync_files).storage
        self._quota = quota
        self._files = files
        self._gpu = gpu
        self._settings = settings
        self.blocks = blocks_within(quota)
        # Use one thread for each CPU, because encoding only computes. If a GPU encodes, the threads wait for it.
        self._cpus = len(os.sched_getaffinity(0))
        least_threads = _LEAST_GPU_THREADS if isinstance(gpu, Gpu) else 1
        self._encode_threads = ThreadPoolExecutor(max(least_threads, self._cpus), "encode")
        self._store_threads = ThreadPoolExecutor(STORE_THREADS, "store")

    def close(self) -> None:
        """End the threads without waiting for their running steps."""
        if isinstance(self._gpu, Gpu):
            self._gpu.staging.close()
        for threads in (self._encode_threads, self._store_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    async def make(self, request: WriteRequest, replies: Replies, place: Place, *, span: Span) -> OpenFile:
        """Make the file for a request; raises UpdraftError if this writer cannot write the file."""
        command, schema = request.command, request.decoder.schema
        wanted_bytes = self._row_group_bytes(command)
        # Grant the stripe before the first await: if several files open at once, each has to see the others' grants.
        stripe_bytes = self._files.grant_stripe(place, wanted_bytes) if command.HasField("orc") else 0
        sink = await self._sink(request, replies)
        gpu = self._gpu
        with ExitStack() as unless_made:
            retained = self._room_for_filters(request)
            unless_made.callback(retained.release)
            # Use a thread, because an encoder writes an empty file to find out what the format accepts.
            encoder = await asyncio.to_thread(
                choose_encoder, command, schema, gpu, max_stripe_bytes=stripe_bytes, blocks=self.blocks
            )
            unless_made.pop_all()
        shape = Shape(
            schema,
            target_bytes=lambda: self._files.target_bytes(wanted_bytes),
            max_rows=int(command.parquet.row_group_rows) or _MAX_ROW_GROUP_ROWS,
        )
        file = OpenFile(
            encoder,
            sink,
            shape,
            self._quota,
            retained=retained,
            row_group_filter_bytes=filters_of_row_group_bytes(command),
            encode_threads=self._encode_threads,
            device=gpu.admission.place(hold=request.holds_gpu) if isinstance(gpu, Gpu) else None,
            span=span,
        )
        if isinstance(encoder, GpuEncoder):
            file.choose = partial(encoder.choose, threads=self._cpus)
            file.most_joined_bytes = encoder.most_joined_bytes
        if isinstance(sink, StoredSink):
            sink.on_silence = file.storage_is_silent
        return file

    async def check(self, command: WriteCommand, roots: Sequence[str]) -> None:
        """Raise WriteRefusedError or SinkError if this writer could not store the file. Creates no file.

        `roots` are the caller's own roots, as in a request.
        """
        if command.delivery == Delivery.DELIVERY_DIRECT:
            await self._found(command, roots)

    def _room_for_filters(self, request: WriteRequest) -> Reservation:
        """Return the reservation for the bytes that a file retains; it already includes the file's first bloom filters.

        Raises QuotaError and WriteOptionError.
        """
        filter_bytes = filters_from_start_bytes(request.command)
        # Do not check room for smaller filters, which are negligible beside the library's own buffers.
        if filter_bytes > _UNASKED_FILTER_BYTES:
            self._quota.check_room(request.share, filter_bytes, "bloom filters")
        retained = self._quota.charge(request.share)
        retained.resize(filter_bytes)
        return retained

    async def _sink(self, request: WriteRequest, replies: Replies) -> Sink:
        settings, command = self._settings, request.command
        if command.delivery == Delivery.DELIVERY_RETURN:
            return ReturnedSink(replies, silence_seconds=settings.client_silence_seconds)
        return StoredSink(
            await self._found(command, request.roots),
            command.path,
            self._store_threads,
            RetryPolicy(),
            silence_seconds=settings.storage_silence_seconds,
        )

    async def _found(self, command: WriteCommand, roots: Sequence[str]) -> Storage:
        """Find the storage for a file; raises UpdraftError, also if the storage does not answer in time.

        Resolving links and connecting to a storage may hang, so this method uses the storage threads. The event loop's
        own threads serve every file and must stay free.
        """
        silence_seconds = self._settings.storage_silence_seconds
        find = partial(self.storage, command.path, roots, in_table=command.in_table)
        looking = asyncio.get_running_loop().run_in_executor(self._store_threads, find)
        try:
            async with asyncio.timeout(silence_seconds or None):
                return await looking
        except TimeoutError:
            raise SinkError(
                f"cannot reach {command.path}: the storage has not answered for {silence_seconds:g} seconds "
                f"(--storage-silence-seconds of the writer); {Standing.UNPUBLISHED.value}"
            ) from None

    def _row_group_bytes(self, command: WriteCommand) -> int:
        if command.HasField("orc"):
            return int(command.orc.stripe_bytes) or DEFAULT_STRIPE_BYTES
        return int(command.parquet.row_group_bytes) or DEFAULT_ROW_GROUP_BYTES


def blocks_within(quota: Quota) -> Blocks:
    """Return a pool of blocks whose free blocks fit into the unused quota."""
    blocks = Blocks(lambda: quota.limits.quota_bytes - quota.held_bytes)
    quota.on_growth = blocks.trim
    return blocks


def choose_encoder(
    command: WriteCommand,
    schema: pa.Schema,
    gpu: Gpu | Reason,
    *,
    max_stripe_bytes: int,
    blocks: Blocks | None = None,
) -> Encoder:
    """Return the encoder for `command`, with the reason for the choice; raises WriteOptionError."""
    footer = dict(command.footer)
    # Always create the CPU encoder: it refuses options and types that no encoder of this writer supports.
    encoder: ParquetEncoder | OrcEncoder
    make_cpu: Callable[[], Encoder]
    make_layout: Callable[[], Layout]
    match command.WhichOneof("format"):
        case "parquet":
            make_cpu = partial(ParquetEncoder, schema, command.parquet, footer, blocks)
            encoder = ParquetEncoder(schema, command.parquet, footer, blocks)
            make_layout = partial(ParquetLayout, schema, command.parquet, footer, encoder.delta_encodings)
        case "orc":
            make_cpu = partial(OrcEncoder, schema, command.orc, footer, blocks, max_stripe_bytes=max_stripe_bytes)
            encoder = OrcEncoder(schema, command.orc, footer, blocks, max_stripe_bytes=max_stripe_bytes)
            make_layout = partial(OrcLayout, schema, command.orc, footer, max_stripe_bytes=max_stripe_bytes)
        case _:
            raise WriteOptionError("the command names no format: give its options, parquet or orc")
    if isinstance(gpu, Reason):
        encoder.reason = gpu
    elif gpu.lost is not None:
        encoder.reason = gpu.lost
    else:
        try:
            layout = make_layout()
            if not gpu.engine.has_codec(layout.plan):
                raise NotOnGpuError(
                    ReasonKind.CODEC, f"the GPU encoder of this machine lacks the codec {layout.plan.codec}"
                )
            return GpuEncoder(gpu, layout, make_cpu, blocks)
        except NotOnGpuError as error:
            encoder.reason = error.reason
    return encoder
