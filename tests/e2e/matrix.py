# SPDX-License-Identifier: Apache-2.0
"""Matrix of the differential suite as a table: the number of tests of each kind of function in each group of cases.

A test belongs to the matrix by `@pytest.mark.matrix("group")` and a parameter `kind`; `conftest.py` prints the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import cast

import pytest

from tests.e2e.kinds import KINDS
from tests.e2e.kinds.kind import Kind


def counts(items: Iterable[pytest.Item]) -> Counter[tuple[str, str]]:
    """Count tests by kind and group."""
    found: Counter[tuple[str, str]] = Counter()
    for item in items:
        marker = item.get_closest_marker("matrix")
        if marker is not None and isinstance(item, pytest.Function):
            kind = cast("Kind", item.callspec.params["kind"])
            found[kind.name, marker.args[0]] += 1
    return found


def table(found: Counter[tuple[str, str]]) -> list[str]:
    """Return a line for each kind, a column for each group, and the sums."""
    groups = list(dict.fromkeys(group for _, group in found))
    rows = [(kind.name, [found[kind.name, group] for group in groups]) for kind in KINDS]
    rows.append(("all", [sum(column) for column in zip(*(row for _, row in rows), strict=True)]))
    lines = [f"{'kind':29}" + "".join(f"{group:>15}" for group in [*groups, "all"])]
    for name, row in rows:
        if sum(row):
            lines.append(f"{name:29}" + "".join(f"{number:>15,}" for number in [*row, sum(row)]))
    return lines
