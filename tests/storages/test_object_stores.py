# SPDX-License-Identifier: Apache-2.0
"""`make test-storages`: a writer that stores its files in the storages that users have."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running_writer import RunningWriter, running_writer

from tests.storages.emulators import BUCKET, HADOOP_JARS, OBJECT_STORES, STORES, ObjectStore
from updraft.errors import SinkError, WriteRefusedError
from updraft.v1.write_pb2 import Codec, Compression, OrcOptions, ParquetOptions

# More than one part of an upload on every store.
_ROWS = 3 << 20
_NOISE = pa.table({"n": np.random.default_rng(1).integers(0, 1 << 62, _ROWS)})
_FEW = _NOISE.slice(0, 1000)
_OPTIONS = ParquetOptions(compression=Compression(codec=Codec.CODEC_NONE), row_group_bytes=1 << 20)


@pytest.fixture(scope="module", params=STORES)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ExitStack() as stack:
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
            environment.setenv(f"AWS_{name}", "S3RVER")
        # Emulators of S3 are behind its clients.
        environment.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        if request.param == "hdfs":
            if not os.environ.get("ARROW_LIBHDFS_DIR"):
                pytest.skip(
                    "ARROW_LIBHDFS_DIR names no directory with libhdfs.so: releases of Hadoop have it in lib/native"
                )
            environment.setenv("CLASSPATH", ":".join(map(str, HADOOP_JARS)))
        make: Any = STORES[request.param]
        yield stack.enter_context(make(tmp_path_factory.mktemp("store")))


@pytest.fixture
def writer(store: ObjectStore, tmp_path: Path) -> Iterator[RunningWriter]:
    with running_writer(tmp_path, storage=store.root) as writer:
        yield writer


@pytest.fixture(autouse=True)
def empty(store: ObjectStore) -> None:
    for name in store.names():
        store.files.delete_file(f"{store.bucket}/{name}")


def readable(store: ObjectStore) -> list[str]:
    """What Spark would read."""
    return [name for name in store.names() if not name.rpartition("/")[2].startswith((".", "_"))]


def stored(store: ObjectStore) -> pa.Table:
    return pq.read_table(f"{store.bucket}/warehouse/deep/f.parquet", filesystem=store.files)


def test_a_file_of_many_parts_is_there_as_a_whole_and_never_before(store: ObjectStore, writer: RunningWriter) -> None:
    path = f"{store.uri}/deep/f.parquet"
    with writer.client() as client:
        with client.create(path, _NOISE.schema, _OPTIONS) as file:
            file.write(_NOISE)
            assert readable(store) == []
        assert store.names() == ["warehouse/deep/f.parquet"]
        assert stored(store).equals(_NOISE)
        with client.create(path, _NOISE.schema, _OPTIONS) as file:
            file.write(_FEW)
    assert store.names() == ["warehouse/deep/f.parquet"]
    assert stored(store).equals(_FEW)


@pytest.mark.parametrize("table", [_FEW, _NOISE], ids=["few rows", "many rows"])
def test_a_file_that_is_given_up_leaves_no_object(store: ObjectStore, writer: RunningWriter, table: pa.Table) -> None:
    with writer.client() as client:
        file = client.create(f"{store.uri}/f.orc", table.schema, OrcOptions())
        file.write(table)
        file.abort()
    writer.becomes_empty()
    assert store.names() == []


@pytest.mark.parametrize("store", OBJECT_STORES, indirect=True)
def test_a_bucket_that_is_not_there_is_the_error_of_the_storage(store: ObjectStore, tmp_path: Path) -> None:
    root, uri = (text.replace(BUCKET, "missing") for text in (store.root, store.uri))
    with (
        running_writer(tmp_path, storage=root) as writer,
        writer.client() as client,
        pytest.raises(SinkError, match="missing"),
    ):
        client.create(f"{uri}/f.parquet", _FEW.schema).finish()


def test_what_a_root_says_of_its_storage_is_not_a_client_s_to_say_nor_to_see(
    store: ObjectStore, writer: RunningWriter
) -> None:
    options = store.root.partition("?")[2]
    with writer.client() as client:
        for path in (f"{store.uri}/f?{options}", f"{store.uri}-other/f"):
            with pytest.raises(WriteRefusedError) as refused:
                client.create(path, _FEW.schema).finish()
            assert options not in str(refused.value).replace(path, "")
