# SPDX-License-Identifier: Apache-2.0
"""Settings that the GPU's library reads from the environment when it is loaded."""

import os

import pytest

from updraft_writer.gpu.gpu import set_up_library

GIB = 1 << 30
POOL, LARGEST_POOL = "LIBCUDF_PINNED_POOL_SIZE", "LIBCUDF_PINNED_POOL_MAX_SIZE"
THRESHOLD = "LIBCUDF_ALLOCATE_HOST_AS_PINNED_THRESHOLD"


@pytest.fixture(autouse=True)
def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (POOL, LARGEST_POOL, THRESHOLD, "LIBCUDF_KERNEL_PINNED_COPY_THRESHOLD"):
        # Set first, so that the test restores the variable even if it was absent before.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("limit_bytes", "pool_bytes"), [(4 * GIB, GIB // 2), (16 * GIB, 2 * GIB), (1024 * GIB, 2 * GIB)]
)
def test_the_pinned_pool_is_a_part_of_the_memory_limit(limit_bytes: int, pool_bytes: int) -> None:
    assert set_up_library(limit_bytes) == pool_bytes
    # Without a limit, the library's pool grows to 16 times its size.
    assert (os.environ[POOL], os.environ[LARGEST_POOL]) == (str(pool_bytes), str(pool_bytes))
    assert os.environ[THRESHOLD] == "4194304"


@pytest.mark.parametrize(("value", "pool_bytes"), [("1000", 1000), ("0", 0), ("many", 0)])
def test_what_the_operator_has_set_stays(monkeypatch: pytest.MonkeyPatch, value: str, pool_bytes: int) -> None:
    monkeypatch.setenv(POOL, value)
    assert set_up_library(8 * GIB) == pool_bytes
    assert (os.environ[POOL], os.environ[LARGEST_POOL]) == (value, value)
    monkeypatch.setenv(LARGEST_POOL, "2000")
    assert set_up_library(8 * GIB) == 2000
