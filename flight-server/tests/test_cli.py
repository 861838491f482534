# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

from updraft_server.settings import ServeSettings


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from updraft_server.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_help_explains_every_setting() -> None:
    shown = " ".join(run("serve", "--help").stdout.split())
    for name, field in ServeSettings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in shown
        assert " ".join(str(field.description).split())[:40] in shown


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.startswith("updraft-server ")


def test_a_bad_setting_ends_with_status_2_and_one_line_that_names_it() -> None:
    ended = run("serve", "--workers", "0")
    assert ended.returncode == 2
    assert ended.stderr == "updraft-server: --workers: input should be greater than or equal to 1\n"


def test_a_bad_environment_variable_is_refused_like_the_option() -> None:
    ended = run("serve", UPDRAFT_QUEUE_LIMIT="-1")
    assert ended.returncode == 2
    assert "--queue-limit" in ended.stderr


def test_listening_beyond_loopback_without_a_token_is_refused_in_words() -> None:
    ended = run("serve", "--listen", "0.0.0.0:0")
    assert ended.returncode == 2
    assert "--insecure-no-token" in ended.stderr


def test_an_unknown_option_is_refused() -> None:
    assert run("serve", "--no-such-option").returncode == 2
