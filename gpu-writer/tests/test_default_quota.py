# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from updraft.container_memory import memory_limits, resident_bytes
from updraft_writer.quota import default_quota

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize(
    ("limit_bytes", "quota_bytes"),
    [
        # 0.6 x (2 GiB - 100 - 256 - 16 x 20 MiB)
        (2 * GIB, int(0.6 * (2 * GIB - 676 * MIB))),
        # Never less than 64 MiB, but never more than half of the limit.
        (512 * MIB, 64 * MIB),
        (100 * MIB, 50 * MIB),
        (1024 * GIB, 512 * GIB),
    ],
)
def test_the_default_quota_is_what_the_container_leaves(limit_bytes: int, quota_bytes: int) -> None:
    assert default_quota({"it": limit_bytes}, base_bytes=100 * MIB)["quota_bytes"] == quota_bytes


def test_pinned_memory_of_the_gpu_s_library_is_no_room_for_batches() -> None:
    terms = default_quota({"it": 8 * GIB}, base_bytes=100 * MIB, pinned_bytes=GIB)
    assert (terms["quota_bytes"], terms["pinned_bytes"]) == (int(0.6 * (7 * GIB - 676 * MIB)), GIB)


def test_every_term_of_the_default_quota_can_be_logged() -> None:
    terms = default_quota({"a": 4 * GIB, "b": 2 * GIB}, base_bytes=MIB)
    assert (terms["limited_by"], terms["limit_bytes"], terms["base_bytes"], terms["streams"]) == ("b", 2 * GIB, MIB, 16)


def group(root: Path, text: str, files: dict[str, str]) -> Path:
    for name, content in {"proc/self/cgroup": text, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_the_least_limit_of_all_ancestors_holds_in_version_2(tmp_path: Path) -> None:
    root = group(
        tmp_path,
        "0::/pod/container\n",
        {
            "sys/fs/cgroup/pod/container/memory.max": "max\n",
            "sys/fs/cgroup/pod/memory.max": "1000\n",
        },
    )
    limits = memory_limits(root)
    assert limits.pop("machine") > 1000
    assert limits == {"cgroup /pod": 1000}


def test_version_1_has_a_number_for_no_limit(tmp_path: Path) -> None:
    root = group(
        tmp_path,
        "5:memory:/docker/x\n",
        {
            "sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000\n",
        },
    )
    assert memory_limits(root)["cgroup v1 /"] == 2000
    assert "cgroup v1 /docker/x" not in memory_limits(root)


def test_without_control_groups_the_machine_is_the_limit(tmp_path: Path) -> None:
    assert list(memory_limits(tmp_path)) == ["machine"]


def test_this_process_has_some_memory_within_its_limits() -> None:
    assert MIB < resident_bytes() < min(memory_limits().values())
