# SPDX-License-Identifier: Apache-2.0
"""Threads that encode and store, and a bench for open files that uses them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from open_file_bench import Bench


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def bench(threads: ThreadPoolExecutor) -> Bench:
    return Bench(threads, 1 << 30)
