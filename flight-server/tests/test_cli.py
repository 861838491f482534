# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys

import pytest

from updraft_server.settings import ServeSettings


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from updraft_server.cli import main; main()", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_help_explains_every_setting() -> None:
    shown = " ".join(run("serve", "--help").stdout.split())
    for name, field in ServeSettings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in shown
        assert " ".join(str(field.description).split())[:40] in shown


def test_help_says_what_a_value_is_and_gives_examples() -> None:
    shown = run("serve", "--help").stdout
    for words in ("--listen ADDRESS", "--token-file PATH", "--drain-timeout-seconds SECONDS", "examples:"):
        assert words in shown
    for words in ("lambda", "None", "--listen str", "--token-file Path", "tuple["):
        assert words not in shown


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


@pytest.mark.parametrize("option", ["--no-such-option", "--default-deadline-seconds", "--max-deadline-seconds"])
def test_an_unknown_option_is_refused(option: str) -> None:
    ended = run("serve", option, "60")
    assert ended.returncode == 2
    assert option in ended.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--runtime-directory=/proc/nowhere"], "/proc/nowhere: No such file"),
        (["--token-file=/nowhere/tokens"], "cannot read /nowhere/tokens: No such file"),
        (["--tls-certificate-file=/dev/null", "--tls-key-file=/dev/null"], "no PEM certificate: /dev/null"),
        (["--ready-file=/nowhere/ready"], "cannot write --ready-file /nowhere/ready: No such file"),
        (["--listen=192.0.2.1:1", "--insecure-no-token"], "cannot listen on 192.0.2.1:1: Cannot assign"),
        (["--listen-unix=/nowhere/pool.sock"], "cannot listen on /nowhere/pool.sock"),
    ],
)
def test_what_keeps_a_pool_from_starting_is_said_without_a_traceback(options: list[str], words: str) -> None:
    listen = [] if any("--listen=" in option for option in options) else ["--listen=127.0.0.1:0"]
    ended = run("serve", *listen, "--admin-listen=", "--metrics-listen=", "--workers=1", *options)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
