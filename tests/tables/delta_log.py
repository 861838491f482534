# SPDX-License-Identifier: Apache-2.0
"""Transaction log of a Delta table, without the values that differ between runs: names, sizes, times and random ids."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Names, sizes and times of files, and ids of tables, transactions and queries.
_RANDOM = {
    "createdTime",
    "deletionTimestamp",
    "id",
    "inCommitTimestamp",
    "lastUpdated",
    "modificationTime",
    # Deletion vectors of one commit share a file, in an order that differs between runs.
    "offset",
    "pathOrInlineDv",
    "size",
    "timestamp",
    "txnId",
}
_MEASURED = re.compile("bytes|time|size", re.IGNORECASE)


def commits(table: Path) -> list[list[str]]:
    """Return the actions of each commit, oldest first; actions of one commit are sorted."""
    columns: dict[str, str] = {}
    return [
        sorted(_action(line, table, columns) for line in file.read_text().splitlines())
        for file in sorted((table / "_delta_log").glob("*.json"))
    ]


def data_files(table: Path) -> list[Path]:
    """Return the Parquet files of all versions, including change data."""
    return [file for file in table.rglob("*.parquet") if "_delta_log" not in file.parts]


def versions_with_all_files(table: Path) -> list[int]:
    """Return the newest version, and each older version with a file or a deletion that no later version contains."""
    files: set[tuple[str, bool]] = set()
    versions = []
    for file in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        removed = {action["remove"]["path"] for action in actions if "remove" in action}
        added = {(action["add"]["path"], _loses_rows(action["add"])) for action in actions if "add" in action}
        files = {entry for entry in files if entry[0] not in removed} | added
        versions.append(files)
    found: list[int] = []
    known: set[tuple[str, bool]] = set()
    for version, files in reversed(list(enumerate(versions))):
        if not found or not files <= known:
            found.append(version)
            known |= files
    return found


def _loses_rows(added: dict[str, Any]) -> bool:
    return added.get("deletionVector") is not None


def _action(line: str, table: Path, columns: dict[str, str]) -> str:
    for name in re.findall(f"col-{_UUID}", line):
        # Number the columns in the order of the schema, which comes first in the log.
        columns.setdefault(name, f"column {len(columns)}")
        line = line.replace(name, columns[name])
    [(kind, fields)] = json.loads(line).items()
    text = json.dumps({kind: _without_random(fields)}, sort_keys=True)
    # A predicate's column names contain numbers, which depend on the expressions that the session has used before.
    return re.sub(rf"{_UUID}|#\d+L?", "#", text.replace(str(table), "{table}"))


def _without_random(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_random(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for key, item in value.items():
        if key in _RANDOM:
            continue
        if key == "path":
            # Directory names are random in tables with column mapping, so keep partitions only.
            kept[key] = [part for part in item.split("/") if "=" in part]
        elif key == "stats":
            kept[key] = json.loads(item)
        elif key == "operationMetrics":
            kept[key] = {name: count for name, count in item.items() if not _MEASURED.search(name)}
        elif key == "tags" and item:
            kept[key] = {name: tag for name, tag in item.items() if not _MEASURED.search(name.replace("_", ""))}
        else:
            kept[key] = _without_random(item)
    return kept
