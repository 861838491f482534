# SPDX-License-Identifier: Apache-2.0
"""Producer to be killed: `python producer.py ADDRESS DIRECTORY` writes small files forever, several at once."""

import itertools
import sys
import threading
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from updraft.client.writer import WriterClient
from updraft.v1.write_pb2 import ParquetOptions

THREADS = 4
ROWS = 20_000
BATCHES = 5


def produce(address: str, directory: str) -> None:
    data = pa.table({"n": pa.arange(0, ROWS, 1)})
    with WriterClient(address) as client:
        for _ in itertools.count():
            path = str(Path(directory) / f"{uuid4().hex}.parquet")
            with client.create(path, data.schema, ParquetOptions(row_group_bytes=1 << 18)) as file:
                for _ in range(BATCHES):
                    file.write(data)
            sys.stdout.write(f"{path}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    for _ in range(THREADS):
        threading.Thread(target=produce, args=sys.argv[1:3]).start()
