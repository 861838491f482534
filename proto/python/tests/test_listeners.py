# SPDX-License-Identifier: Apache-2.0
import resource
from collections.abc import Iterator

import pytest

from updraft.service.listeners import allow_all_descriptors, most_connections


@pytest.fixture
def most() -> Iterator[int]:
    """Lower the soft limit of this process during a test, and yield the hard limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_service_takes_as_many_descriptors_as_it_can_have(most: int) -> None:
    allow_all_descriptors()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)


@pytest.mark.usefixtures("most")
def test_the_connections_of_all_listeners_leave_descriptors_for_the_rest() -> None:
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert most_connections() == limit // 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit // 2, most))
    assert most_connections() == limit // 8


def test_a_kernel_without_a_limit_gives_connections_a_bound_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert most_connections() == 1 << 18
