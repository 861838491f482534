# SPDX-License-Identifier: Apache-2.0
"""The compose file for laptops is valid and starts the images that `make images` builds.

`tests/images/test_compose.py` runs them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from tests.support.compose import FILE, services
from tests.support.paths import REPOSITORY, VERSION
from updraft.service.addresses import parse_tcp_address
from updraft_server.settings import ServeSettings as PoolSettings
from updraft_writer.settings import ServeSettings as WriterSettings

_SETTINGS = {"pool": PoolSettings, "writer": WriterSettings}
_DOCKERFILE = (REPOSITORY / "deploy/images/Dockerfile").read_text()


@pytest.fixture(params=_SETTINGS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def service(name: str) -> dict[str, Any]:
    return services()[name]


@pytest.fixture
def settings(name: str, service: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    for variable, value in service["environment"].items():
        monkeypatch.setenv(variable, value)
    return _SETTINGS[name]()


def test_it_keeps_to_the_specification_of_compose() -> None:
    """Use the schema that check-jsonschema carries, so the test needs no network."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert services().keys() == _SETTINGS.keys()


def test_a_service_has_the_image_that_make_images_builds(name: str, service: dict[str, Any]) -> None:
    assert service["image"] == f"updraft-{name}:{VERSION}"
    built = service["build"]
    assert (FILE.parent / built["context"]).resolve() == REPOSITORY
    assert (REPOSITORY / built["dockerfile"]).read_text() == _DOCKERFILE
    assert built["target"] == name
    assert all(re.search(rf"^ARG {argument}\b", _DOCKERFILE, re.MULTILINE) for argument in built.get("args", {}))


def test_each_variable_is_a_setting_and_its_value_is_valid(service: dict[str, Any], settings: Any) -> None:
    known = {f"UPDRAFT_{field.upper()}" for field in type(settings).model_fields}
    assert set(service["environment"]) <= known
    assert settings.insecure_no_token
    assert str(settings.ready_file) in service["healthcheck"]["test"]


def test_only_the_laptop_itself_reaches_the_ports(service: dict[str, Any], settings: Any) -> None:
    published = {}
    for port in service["ports"]:
        host, outside, inside = port.split(":")
        assert (host, outside) == ("127.0.0.1", inside)
        published[inside] = port
    listening = [parse_tcp_address(address) for address in (settings.listen, settings.metrics_listen)]
    assert [str(address.port) for address in listening] == list(published)
    exposed = re.findall(r"^EXPOSE (.*)$", _DOCKERFILE, re.MULTILINE)
    assert any(set(published) <= set(ports.split()) for ports in exposed)


def test_a_container_has_no_rights_and_writes_only_to_a_directory_of_its_user(
    service: dict[str, Any], settings: Any
) -> None:
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    (user,) = set(re.findall(r"^USER (\d+):\1$", _DOCKERFILE, re.MULTILINE))
    (temporary,) = service["tmpfs"]
    directory, _, options = temporary.partition(":")
    assert {f"uid={user}", f"gid={user}", "mode=0700"} <= set(options.split(","))
    assert settings.ready_file.is_relative_to(directory)
    # A drain ends before Compose kills the container.
    assert settings.drain_timeout_seconds + 15 <= int(service["stop_grace_period"].rstrip("s"))
