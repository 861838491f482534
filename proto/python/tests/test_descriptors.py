# SPDX-License-Identifier: Apache-2.0
import resource
from collections.abc import Iterator

import pytest

from updraft.service.descriptors import allow_all_descriptors


@pytest.fixture
def most() -> Iterator[int]:
    """The hard limit of this process, whose soft limit is low for the time of a test."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_service_takes_as_many_descriptors_as_it_can_have(most: int) -> None:
    allow_all_descriptors()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
