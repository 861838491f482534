# SPDX-License-Identifier: Apache-2.0
"""Writers that can be reached but that refuse to open a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from tests.support.waiting import until
from tests.support.writer import LocalWriter
from updraft.client.writer import WriterClient

UNFIT = ("full", "of another version")


@contextmanager
def unfit_writer(root: Path, held: Path, unfit: str) -> Iterator[LocalWriter]:
    """Run a writer for files below `root` that is unfit in this way; a full writer has an open file in `held`."""
    if unfit == "of another version":
        with LocalWriter(root, constants={"updraft.service.exchange.PROTOCOL_VERSION": 99}) as writer:
            yield writer
        return
    with (
        LocalWriter(root, arguments=["--root", str(held), "--max-open-files", "1"]) as writer,
        WriterClient(writer.tcp_address) as client,
    ):
        file = client.create(str(held / "open.parquet"), pa.schema({"id": pa.int64()}))
        until("the file is open", lambda: writer.status()["open_files"])
        try:
            yield writer
        finally:
            file.abort()
