# SPDX-License-Identifier: Apache-2.0
import pytest

from updraft.v1.exchange_pb2 import Limits, Owner, TaskIdentity
from updraft_server.ipc.assignment import Assignment

WHOLE = Assignment(
    tenant="team",
    eval_type=250,
    python_includes=["helpers.py"],
    environment={"TZ": "UTC"},
    task=TaskIdentity(owner=Owner(application_id="app"), stage_id=3, local_properties={"team": "ü"}),
    limits=Limits(max_records_per_batch=10),
    batch_timeout_seconds=1.5,
    files_directory="/files",
    broadcasts={"3": "/broadcast"},
)


@pytest.mark.parametrize("assignment", [Assignment(), Assignment(plain=True, function_name="echo"), WHOLE])
def test_a_worker_reads_what_the_front_has_decided(assignment: Assignment) -> None:
    decoded = Assignment.decode(assignment.encode())
    assert {name: getattr(decoded, name) for name in Assignment.__slots__} == {
        name: list(value) if isinstance(value := getattr(assignment, name), tuple) else value
        for name in Assignment.__slots__
    }


@pytest.mark.parametrize(("tenant", "named"), [("team", "team"), ("app", ""), ("", "")])
def test_an_application_is_no_tenant_that_a_client_has_named(tenant: str, named: str) -> None:
    assert Assignment(tenant=tenant, owner=(tenant, "app", "session")).named_tenant == named


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"task": "", "limits": "!"}', b'{"task": "/w==", "limits": ""}'])
def test_what_is_no_assignment_is_told_apart(data: bytes) -> None:
    with pytest.raises((ValueError, TypeError)):
        Assignment.decode(data)
