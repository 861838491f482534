# SPDX-License-Identifier: Apache-2.0
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from structlog.testing import capture_logs

from updraft.errors import UnauthenticatedError
from updraft.service.security import BearerTokens, SecurityError, WatchedFiles, server_credentials


def test_any_token_of_the_file_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("one\n\n# comment\n  two  \n")
    tokens = BearerTokens(tmp_path / "tokens")
    tokens.check("Bearer one")
    tokens.check("Bearer two")


@pytest.mark.parametrize(
    "header", ["", "one", "Basic one", "Bearer", "Bearer ", "Bearer on", "Bearer # comment", "bearer one"]
)
def test_anything_else_is_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "tokens").write_text("one\n# comment\n")
    with pytest.raises(UnauthenticatedError):
        BearerTokens(tmp_path / "tokens").check(header)


@pytest.mark.parametrize("content", ["", "\n", "# only a comment\n"])
def test_a_file_without_tokens_is_refused_at_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(SecurityError, match="no token"):
        BearerTokens(tmp_path / "tokens")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match="tokens"):
        BearerTokens(tmp_path / "tokens")


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def is_valid(tokens: BearerTokens, token: str = "one") -> bool:
    try:
        tokens.check(f"Bearer {token}")
    except UnauthenticatedError:
        return False
    return True


def is_emptied(path: Path) -> None:
    path.write_text("")


def is_truncated_to_a_comment(path: Path) -> None:
    os.truncate(path, len("# tokens\n"))


def is_removed(path: Path) -> None:
    path.unlink()


def becomes_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def becomes_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def becomes_a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def becomes_an_endless_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def is_filled_with_garbage(path: Path) -> None:
    path.write_bytes(b"\x7fELF\x02\x01\none\n")


def is_extended_with_zeros(path: Path) -> None:
    os.truncate(path, 4096)


def gets_a_line_that_no_header_can_carry(path: Path) -> None:
    path.write_text("one\nzwölf\n")


def gets_too_large(path: Path) -> None:
    path.write_text("one\n" * 1_000_000)


UNUSABLE = [
    is_emptied,
    is_truncated_to_a_comment,
    is_removed,
    becomes_a_directory,
    becomes_a_pipe,
    becomes_a_link_to_itself,
    becomes_an_endless_device,
    is_filled_with_garbage,
    is_extended_with_zeros,
    gets_a_line_that_no_header_can_carry,
    gets_too_large,
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text("# tokens\none\n")
    return path


@pytest.mark.parametrize("happens", UNUSABLE)
def test_a_file_that_becomes_unusable_revokes_all_tokens_within_seconds(
    path: Path, happens: Callable[[Path], None]
) -> None:
    clock = Clock()
    tokens = BearerTokens(path, clock)
    clock.seconds += 1000
    assert is_valid(tokens)
    happens(path)
    with capture_logs() as log:
        clock.seconds += 1.9
        assert is_valid(tokens)
        clock.seconds += 0.2
        for _ in range(3):
            assert not is_valid(tokens)
    # One line when the file is first found unusable, and one when its tokens become invalid.
    assert [line["log_level"] for line in log] == ["error", "error"]
    assert str(path) in log[0]["files"]
    assert log[1]["event"] == "no token is valid any more: the token file cannot be used"


@pytest.mark.parametrize("happens", UNUSABLE)
def test_who_comes_long_after_the_file_became_unusable_finds_no_token_valid(
    path: Path, happens: Callable[[Path], None]
) -> None:
    clock = Clock()
    tokens = BearerTokens(path, clock)
    happens(path)
    clock.seconds += 3600
    assert not is_valid(tokens)


@pytest.mark.parametrize("happens", UNUSABLE)
def test_tokens_are_valid_again_once_the_file_is_usable(path: Path, happens: Callable[[Path], None]) -> None:
    clock = Clock()
    tokens = BearerTokens(path, clock)
    happens(path)
    clock.seconds += 3600
    assert not is_valid(tokens)
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_text("two\n")
    with capture_logs() as log:
        assert is_valid(tokens, "two")
        assert not is_valid(tokens, "one")
    assert log[-1]["event"] == "tokens are valid again: the token file can be used"


def test_a_file_that_may_no_longer_be_read_revokes_all_tokens(path: Path) -> None:
    clock = Clock()
    tokens = BearerTokens(path, clock)
    path.chmod(0)
    nobody = 65534
    user = os.geteuid()
    if user == 0:
        os.seteuid(nobody)
    try:
        clock.seconds += 2.1
        assert not is_valid(tokens)
    finally:
        os.seteuid(user)


def test_a_file_that_is_written_anew_in_its_place_refuses_no_honest_call(path: Path) -> None:
    clock = Clock()
    tokens = BearerTokens(path, clock)
    for _ in range(3):
        clock.seconds += 0.5
        tokens.refresh()
        with path.open("w") as file:
            clock.seconds += 0.5
            assert is_valid(tokens)
            file.write("one\n")
        assert is_valid(tokens)


def test_a_line_that_is_taken_out_is_refused_at_the_next_look(path: Path) -> None:
    path.write_text("one\ntwo\n")
    tokens = BearerTokens(path, Clock())
    assert is_valid(tokens, "one")
    path.write_text("two\n")
    assert not is_valid(tokens, "one")
    assert is_valid(tokens, "two")


def test_a_token_that_is_replaced_with_all_times_kept_is_refused(path: Path) -> None:
    tokens = BearerTokens(path, Clock())
    before = path.stat()
    path.write_text("# tokens\ntwo\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not is_valid(tokens, "one")
    assert is_valid(tokens, "two")


def test_a_secret_that_kubernetes_swaps_is_followed(tmp_path: Path) -> None:
    """The kubelet writes a new directory and replaces the link to it."""
    for name, token in (("..1", "one"), ("..2", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokens").write_text(token)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "tokens").symlink_to("..data/tokens")
    clock = Clock()
    tokens = BearerTokens(tmp_path / "tokens", clock)
    assert is_valid(tokens, "one")
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    clock.seconds += 3600
    assert is_valid(tokens, "two")
    assert not is_valid(tokens, "one")


def descriptors(directory: Path) -> list[Path]:
    """Return the open files below the directory, because threads of other tests still open and close their own."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            found.append(descriptor.readlink())
    return sorted(path for path in found if path.is_relative_to(directory))


def test_looking_at_an_unusable_file_keeps_no_descriptor(path: Path) -> None:
    tokens = BearerTokens(path, Clock())
    becomes_a_directory(path)
    for _ in range(20):
        tokens.refresh()
    assert descriptors(path) == []


def test_a_certificate_that_cannot_be_read_any_more_leaves_the_last_in_force(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("certificate")
    files = WatchedFiles((path,), bytes)
    path.unlink()
    with capture_logs() as log:
        assert [files.refresh() for _ in range(3)] == [False, False, False]
    assert files.content == b"certificate"
    assert len(log) == 1


def test_files_that_are_no_certificate_or_key_are_refused_at_the_start(tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    issued = trustme.CA().issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(certificate)
    key.write_text("nonsense")
    with pytest.raises(SecurityError, match="private key"):
        server_credentials(certificate, key, None)
    issued.private_key_pem.write_to_path(key)
    certificate.write_text("nonsense")
    with pytest.raises(SecurityError, match="certificate"):
        server_credentials(certificate, key, None)
