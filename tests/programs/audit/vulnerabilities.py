# SPDX-License-Identifier: Apache-2.0
"""Known vulnerabilities of components, from a service with OSV's API (https://google.github.io/osv.dev/api).

One request with the bills' package URLs covers both languages. Existing tools read files of either uv or Maven but not
of both, or must be downloaded as a binary. An incomplete answer is an error, never a pass.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.programs.audit.bills import Component
from tests.programs.audit.policy import AuditError

OSV = "https://api.osv.dev"
_TIMEOUT_SECONDS = 60
_QUESTIONS = 500
_MOST_PAGES = 20
_MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Finding:
    """Vulnerability of a component."""

    component: Component
    id: str
    severity: str
    summary: str
    fixed: tuple[str, ...]
    """Versions of the component in which the vulnerability is fixed."""


def look_up(components: Sequence[Component], url: str = OSV) -> list[Finding]:
    """Return the known vulnerabilities of the components; raise AuditError."""
    url = url.rstrip("/")
    found: list[tuple[Component, str]] = []
    for begin in range(0, len(components), _QUESTIONS):
        found.extend(_ids(components[begin : begin + _QUESTIONS], url))
    return [_finding(component, _asked(f"{url}/v1/vulns/{name}")) for component, name in found]


def _ids(components: Sequence[Component], url: str) -> Iterator[tuple[Component, str]]:
    questions = [
        (component, {"package": {"purl": f"{_unversioned(component)}@{component.version}"}}) for component in components
    ]
    for _ in range(_MOST_PAGES):
        if not questions:
            return
        answer = _asked(f"{url}/v1/querybatch", {"queries": [question for _, question in questions]})
        try:
            results = answer["results"]
            more = []
            for (component, question), result in zip(questions, results, strict=True):
                for vulnerability in result.get("vulns", ()):
                    yield component, str(vulnerability["id"])
                if token := result.get("next_page_token"):
                    more.append((component, {**question, "page_token": token}))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise AuditError(f"{url} answers what OSV's API does not say: {error!r}") from None
        questions = more
    raise AuditError(f"{url} gives more than {_MOST_PAGES} pages")


def _unversioned(component: Component) -> str:
    return component.purl.rpartition("@")[0]


def _finding(component: Component, details: dict[str, Any]) -> Finding:
    try:
        own = [entry for entry in details.get("affected", ()) if _is_of(entry, component)]
        events = [event for entry in own for scope in entry.get("ranges", ()) for event in scope.get("events", ())]
        severity = details.get("database_specific", {}).get("severity") or "UNKNOWN"
        fixed = tuple(dict.fromkeys(str(event["fixed"]) for event in events if "fixed" in event))
        summary = str(details.get("summary") or details.get("details") or "").partition("\n")[0]
        return Finding(component, str(details["id"]), str(severity).upper(), summary, fixed)
    except (KeyError, TypeError, AttributeError) as error:
        raise AuditError(f"a vulnerability of {component.name} cannot be read: {error!r}") from None


def _is_of(entry: dict[str, Any], component: Component) -> bool:
    package = entry.get("package", {})
    return bool(package.get("purl") == _unversioned(component) or package.get("name") == component.name)


def _asked(url: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
    body = None if question is None else json.dumps(question).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            parsed = json.loads(answer.read(_MOST_BYTES))
    except (OSError, ValueError, urllib.error.URLError, http.client.HTTPException) as error:
        raise AuditError(
            f"{url} does not answer as it should: {error}; name another service with OSV's API by --osv-url,"
            " or leave vulnerabilities out with --offline"
        ) from None
    if not isinstance(parsed, dict):
        raise AuditError(f"{url} answers what OSV's API does not say")
    return parsed
