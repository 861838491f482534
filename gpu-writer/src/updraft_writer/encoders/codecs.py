# SPDX-License-Identifier: Apache-2.0
"""Codecs and their levels, checked before any batch of a file is accepted."""

import pyarrow as pa

from updraft.errors import WriteOptionError
from updraft.v1.write_pb2 import Codec, Compression

_WITH_LEVELS = ("zstd", "gzip")


def codec_name(compression: Compression) -> str:
    """Return Arrow's name of the codec, Snappy by default; raises WriteOptionError for an unknown codec."""
    if compression.codec not in Codec.values():
        raise WriteOptionError(f"unknown codec {compression.codec}")
    # The protocol names codecs as Arrow does.
    return Codec.Name(compression.codec or Codec.CODEC_SNAPPY).removeprefix("CODEC_").lower()


def compression_level(compression: Compression) -> int | None:
    """Return the level, or None if the client gave none; raises WriteOptionError if the codec does not support it."""
    if not compression.HasField("level"):
        return None
    codec = codec_name(compression)
    if codec not in _WITH_LEVELS:
        raise WriteOptionError(f"the codec {codec} has no levels, but the command asks for level {compression.level}")
    least, most = pa.Codec.minimum_compression_level(codec), pa.Codec.maximum_compression_level(codec)
    if not least <= compression.level <= most:
        raise WriteOptionError(f"{codec} has the levels {least} to {most}, not {compression.level}")
    return int(compression.level)
