# SPDX-License-Identifier: Apache-2.0
"""Access to the metrics and the state of a writer."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from running_writer import running_writer


def status(url: str, token: str) -> int:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.parametrize("page", ["metrics", "status.json"])
def test_who_observes_needs_a_token_where_there_is_a_file_of_them(tmp_path: Path, page: str) -> None:
    (tmp_path / "root").mkdir()
    tokens = tmp_path / "tokens"
    tokens.write_text("right\n")
    with running_writer(tmp_path / "root", metrics_listen="127.0.0.1:0", metrics_token_file=tokens) as writer:
        url = f"http://{writer.settings.metrics_address}/{page}"
        assert [status(url, token) for token in ("", "wrong", "right")] == [401, 401, 200]
