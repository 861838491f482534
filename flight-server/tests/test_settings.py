# SPDX-License-Identifier: Apache-2.0
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_settings import CliApp

from updraft_server import segments_directory
from updraft_server.settings import SeparateFrontSettings, SeparateWorkersSettings, ServeSettings, reference

REFERENCE = Path(__file__).parents[2] / "docs/reference/server.md"


def test_the_reference_page_has_exactly_the_settings_that_there_are() -> None:
    assert REFERENCE.read_text() == reference(), "run `make docs`"


def test_the_environment_sets_what_the_options_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPDRAFT_WORKERS", "7")
    assert ServeSettings().workers == 7
    assert ServeSettings(workers=3).workers == 3


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"listen": "0.0.0.0:8815"}, "--insecure-no-token"),
        ({"listen": "[::]:8815"}, "--insecure-no-token"),
        ({"listen": "example.org:8815"}, "--insecure-no-token"),
        ({"listen": "8815"}, "host:port"),
        ({"listen": "127.0.0.1:99999"}, "host:port"),
        ({"listen": ""}, "listen nowhere"),
        ({"listen_unix_access": "everyone"}, "--insecure-no-token"),
        ({"tls_key_file": "k"}, "go together"),
        ({"tls_client_ca_file": "c"}, "--tls-certificate-file"),
        ({"workers": 0}, "greater than or equal to 1"),
        ({"drain_timeout_seconds": -1}, "greater than or equal to 0"),
        ({"log_format": "xml"}, "json"),
        (
            {"require": "seccomp,wishes"},
            "'wishes' is not a layer of the workers' sandbox: the layers are read-only-files, shared-memory, ",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_a_reason(values: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ServeSettings(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"listen": "0.0.0.0:8815", "token_file": "t"},
        {"listen": "0.0.0.0:8815", "insecure_no_token": True},
        {
            "listen": "0.0.0.0:8815",
            "tls_certificate_file": "c",
            "tls_key_file": "k",
            "tls_client_ca_file": "ca",
        },
        {"listen": "127.0.0.1:0"},
        {"listen": "[::1]:8815"},
        {"listen": "localhost:8815"},
        {"listen": "", "listen_unix": "/run/updraft.sock"},
    ],
)
def test_settings_that_keep_strangers_out_are_accepted(values: dict[str, Any]) -> None:
    ServeSettings(**values)


def test_free_ports_are_chosen_once_so_that_a_restarted_front_finds_them_again() -> None:
    settings = ServeSettings(listen="127.0.0.1:0", admin_listen="127.0.0.1:0", metrics_listen="").with_free_ports()
    assert not settings.listen.endswith(":0")
    assert not settings.admin_listen.endswith(":0")
    assert ServeSettings.model_validate_json(settings.model_dump_json()).listen == settings.listen


def test_function_modules_are_given_again_or_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CliApp.run(ServeSettings, cli_args=["--functions", "a.b", "--functions", "c"]).functions == ("a.b", "c")
    assert CliApp.run(ServeSettings, cli_args=["--functions=a.b,c"]).functions == ("a.b", "c")
    monkeypatch.setenv("UPDRAFT_FUNCTIONS", "a.b, c")
    assert ServeSettings().functions == ("a.b", "c")


def test_what_is_not_a_module_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'\.\./x' is not the name of a Python module"):
        ServeSettings(functions=("../x",))


def test_a_half_of_a_pool_needs_the_directory_in_which_they_find_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="runtime_directory"):
        SeparateFrontSettings.model_validate({})
    with pytest.raises(ValidationError, match="front_directory"):
        SeparateWorkersSettings.model_validate({})
    assert SeparateWorkersSettings(front_directory=tmp_path).front_directory == tmp_path


def test_the_workers_settings_name_no_secret() -> None:
    """A container that runs user code has these settings in its environment, so none may be a secret."""
    assert not {"token_file", "tls_key_file", "tls_certificate_file"} & SeparateWorkersSettings.model_fields.keys()


def test_together_the_halves_can_be_told_what_a_whole_pool_can() -> None:
    halves = SeparateFrontSettings.model_fields.keys() | SeparateWorkersSettings.model_fields.keys()
    assert halves - {"front_directory"} == ServeSettings.model_fields.keys()


@pytest.mark.parametrize(
    "options",
    [
        {"writable_paths": "/data,/tmp", "runtime_directory": "/tmp/pool"},
        {"writable_paths": tempfile.gettempdir()},
        {"writable_paths": "/etc", "token_file": "/etc/updraft/tokens"},
        {"hidden_paths": "/dev/shm/secret"},
    ],
)
def test_what_functions_may_write_to_holds_no_secret(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="session functions may write to"):
        ServeSettings(**options)


def test_paths_are_given_one_by_one_or_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPDRAFT_WRITABLE_PATHS", "/data,/srv")
    assert ServeSettings().writable_paths == ("/data", "/srv")
    with pytest.raises(ValidationError, match="not an absolute path"):
        ServeSettings(hidden_paths=("secrets",))


def test_secrets_that_the_settings_name_are_hidden() -> None:
    key, certificate = Path("/a/key"), Path("/a/certificate")
    settings = ServeSettings(
        token_file=Path("/a/tokens"),
        tls_key_file=key,
        tls_certificate_file=certificate,
        audit_file=Path("/a/audit"),
        hidden_paths=("/x",),
    )
    assert settings.secret_paths == ("/a/tokens", "/a/key", "/a/audit", "/x")


def test_segments_that_functions_could_list_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_directory, "_is_in_memory", lambda directory: directory == tmp_path / "memory")
    for name, hidden in (("memory", (f"{tmp_path}/memory/pool.sock.segments",)), ("disk", ())):
        assert ServeSettings(listen_unix=tmp_path / name / "pool.sock").secret_paths == hidden


def test_segments_are_for_clients_on_this_machine(tmp_path: Path) -> None:
    def found(listen: str, listen_unix: Path | None = None) -> Path | None:
        settings = ServeSettings(listen=listen, listen_unix=listen_unix, insecure_no_token=True)
        return segments_directory.segments_directory(settings.listen_address, settings.listen_unix)

    shared = [found("127.0.0.1:8815"), found("127.0.0.1:8816"), found("[::1]:8815"), found("", tmp_path / "pool.sock")]
    assert all(directory is not None and directory.parent == Path("/dev/shm") for directory in shared)
    assert len(set(shared)) == len(shared)
    assert found("127.0.0.1:8816", tmp_path / "pool.sock") == shared[3]
    assert found("0.0.0.0:8815") is None
