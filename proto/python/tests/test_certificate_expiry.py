# SPDX-License-Identifier: Apache-2.0
"""Expiry of a service's certificate."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from updraft.service.security import expiry_timestamp_seconds

_SOON, _LATER = datetime(2031, 5, 1, tzinfo=UTC), datetime(2033, 5, 1, tzinfo=UTC)


def test_the_first_of_a_chain_counts(tmp_path: Path) -> None:
    authority = trustme.CA()
    chain = [authority.issue_cert("localhost", not_after=end).cert_chain_pems[0].bytes() for end in (_LATER, _SOON)]
    (tmp_path / "tls.crt").write_bytes(b"".join(chain))
    assert expiry_timestamp_seconds(tmp_path / "tls.crt") == _SOON.timestamp()


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n"])
def test_a_file_that_is_no_certificate_counts_as_expired(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "tls.crt").write_bytes(content)
    assert expiry_timestamp_seconds(tmp_path / "tls.crt") == 0.0
