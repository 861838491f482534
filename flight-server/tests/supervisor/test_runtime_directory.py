# SPDX-License-Identifier: Apache-2.0
"""A pool starts only in a private directory of its own; otherwise it says what to change."""

import os
from pathlib import Path

import pytest

from updraft_server.supervisor.runtime_directory import claimed


def test_a_missing_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    with claimed(tmp_path / "a" / "b", ["front", "workers"]):
        assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_two_halves_share_a_directory_and_a_second_of_either_is_refused(tmp_path: Path) -> None:
    with claimed(tmp_path, ["front"]), claimed(tmp_path, ["workers"]):
        for half in ("front", "workers"):
            with (
                pytest.raises(OSError, match=f"the {half} of another pool.*--runtime-directory") as raised,
                claimed(tmp_path, [half]),
            ):
                pass
            assert raised.value.filename == str(tmp_path)


def test_a_pool_that_has_ended_leaves_its_directory_to_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        with claimed(tmp_path, ["front", "workers"]):
            pass


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o2777])
def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(OSError, match="others may write"), claimed(tmp_path, ["front"]):
        pass


def test_others_may_look_at_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with claimed(tmp_path, ["front"]):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("link", [False, True])
def test_a_directory_or_a_link_of_another_user_is_refused(tmp_path: Path, link: bool) -> None:
    path, target = tmp_path / "pool", tmp_path / "target"
    target.mkdir()
    if link:
        path.symlink_to(target)
    else:
        target.rename(path)
    os.chown(path, 4711, -1, follow_symlinks=False)
    with pytest.raises(OSError, match="belongs to the user 4711"), claimed(path, ["front"]):
        pass


def test_a_path_that_is_too_long_for_a_socket_is_refused_by_its_length(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 100)
    with pytest.raises(OSError, match="shorter path: at most 96 bytes"), claimed(directory, ["front"]):
        pass
    assert not directory.exists()
