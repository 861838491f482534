# SPDX-License-Identifier: Apache-2.0
"""Bills of materials in CycloneDX's JSON, as uv and Maven write them: the packages that ship with Updraft."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests.programs.audit.policy import AuditError

_OWN = ("updraft-", "updraft_")
_OWN_GROUP = "io.updraft"


@dataclass(frozen=True)
class Component:
    """Third-party package that ships with Updraft."""

    language: str
    name: str
    version: str
    purl: str
    """Package URL, which identifies the package in the vulnerability service."""
    licences: tuple[str, ...] | None
    """Licenses as the package names them; None if its metadata is not available."""


def read_bill(path: Path, language: str) -> list[Component]:
    """Return the third-party components of a bill; raise AuditError for an empty or malformed file."""
    try:
        document = json.loads(path.read_text())
        listed = document["components"] if document["bomFormat"] == "CycloneDX" else []
        found = {
            entry["purl"]: Component(
                language, _name(entry), entry["version"], entry["purl"].partition("?")[0], _licences(entry, language)
            )
            for entry in listed
            if not entry["name"].startswith(_OWN) and entry.get("group") != _OWN_GROUP
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AuditError(f"{path} is no bill of materials: {error!r}") from None
    if not found:
        raise AuditError(f"{path} lists nothing: something went wrong when it was written")
    return sorted(found.values(), key=lambda component: component.purl)


def _name(entry: dict[str, str]) -> str:
    return f"{entry['group']}:{entry['name']}" if entry.get("group") else entry["name"]


def _licences(entry: dict[str, list[dict[str, dict[str, str]]]], language: str) -> tuple[str, ...] | None:
    if language == "Python":
        return _licences_of_package(str(entry["name"]))
    named = [choice["license"] for choice in entry.get("licenses", ()) if "license" in choice]
    return tuple(licence.get("id") or licence["name"] for licence in named)


def _licences_of_package(name: str) -> tuple[str, ...] | None:
    """Return the license from the installed package's metadata, because uv's bill contains no licenses."""
    try:
        said = metadata.metadata(name).json
    except metadata.PackageNotFoundError:
        return None
    licence = str(said.get("license_expression") or said.get("license") or "")
    # Some packages put the whole license text into this field.
    return (licence,) if licence and "\n" not in licence else ()
