# SPDX-License-Identifier: Apache-2.0
"""Command `updraft-writer` as users start it."""

import json
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from writer_process import COMMAND

from updraft.client.writer import WriterClient
from updraft_writer.settings import ServeSettings, reference

REFERENCE = Path(__file__).parents[3] / "docs/reference/writer.md"


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, env=environment)


def test_the_reference_page_has_exactly_the_settings_that_there_are() -> None:
    assert REFERENCE.read_text() == reference(), "run `make docs`"


def test_help_explains_every_setting_and_gives_examples() -> None:
    shown = " ".join(run("serve", "--help").stdout.split())
    for name, field in ServeSettings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in shown
        assert " ".join(str(field.description).split())[:40] in shown
    for words in ("--listen ADDRESS", "--root PATHS", "--quota-bytes BYTES", "examples:"):
        assert words in shown
    for words in ("lambda", "None", "tuple["):
        assert words not in shown


def test_the_version_is_printed() -> None:
    assert run("--version").stdout.startswith("updraft-writer ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--root", "relative"], "--root: 'relative' is neither an absolute path nor a URI"),
        (["--root", "/data/../etc"], "contains .. or a null byte"),
        (["--listen", "0.0.0.0:0"], "--insecure-no-token"),
        (["--quota-bytes", "-1"], "--quota-bytes"),
        (["--tls-certificate-file=/dev/null", "--tls-key-file=/dev/null"], "no PEM certificate"),
        (["--listen=192.0.2.1:1", "--insecure-no-token"], "cannot listen on 192.0.2.1:1"),
        (["--ready-file=/nowhere/ready"], "cannot write --ready-file"),
    ],
)
def test_what_keeps_a_writer_from_starting_is_said_in_a_line(arguments: list[str], says: str) -> None:
    addresses = ["--listen=127.0.0.1:0", "--admin-listen=", "--metrics-listen="]
    ended = run("serve", *addresses, *arguments)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_roots_are_given_again_or_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPDRAFT_ROOT", "/a, s3://b/c")
    assert ServeSettings().root == ("/a", "s3://b/c")
    with pytest.raises(ValidationError):
        ServeSettings(root=("a",))


def test_a_writer_logs_its_quota_writes_a_file_and_ends_in_peace_on_sigterm(tmp_path: Path) -> None:
    ready, log = tmp_path / "ready.json", tmp_path / "log"
    addresses = [f"--{name}=127.0.0.1:0" for name in ("listen", "admin-listen", "metrics-listen")]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "serve", *addresses, f"--root={tmp_path}", f"--ready-file={ready}"], stderr=stderr
        )
    try:
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            time.sleep(0.01)
        table = pa.table({"n": [1, 2, 3]})
        address = json.loads(ready.read_text())["listen"]
        with WriterClient(address) as client, client.create(str(tmp_path / "f.parquet"), table.schema) as file:
            file.write(table)
        assert pq.read_table(tmp_path / "f.parquet").equals(table)
    finally:
        process.terminate()
    assert process.wait(60) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    quota = next(line for line in lines if line["event"] == "the quota is computed")
    assert {"quota_bytes", "limit_bytes", "limited_by", "base_bytes", "streams", "stream_bytes"} <= quota.keys()
    assert lines[-1]["event"] == "drained"
    assert lines[-1]["held_bytes"] == 0
