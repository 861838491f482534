# SPDX-License-Identifier: Apache-2.0
"""License check, which compares the licenses of shipped packages with the allowed licenses."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from tests.programs.audit.bills import Component
from tests.programs.audit.policy import POLICY_FILE, Policy


def licence_of(component: Component, policy: Policy) -> str:
    """Return the SPDX expression from the policy or else from the component; empty if neither names a license."""
    own = policy.licences.get(component.name)
    if own is not None:
        return own
    named = [policy.licence_names.get(licence, licence) for licence in component.licences or ()]
    try:
        # Maven lists alternative licenses; we may choose one.
        return canonicalize_license_expression(" OR ".join(named if len(named) == 1 else map("({})".format, named)))
    except InvalidLicenseExpression:
        return ""


def is_allowed(expression: str, policy: Policy) -> bool:
    """Return whether one side of each OR, and both sides of each AND, are allowed licenses."""
    expression = _unwrapped(expression.strip())
    for word, decide in ((" OR ", any), (" AND ", all)):
        parts = _split(expression, word)
        if len(parts) > 1:
            return decide(is_allowed(part, policy) for part in parts)
    return expression in policy.allowed_licences


def refused(components: Iterable[Component], policy: Policy) -> list[str]:
    """Return a line for each component with a forbidden or unknown license."""
    lines = []
    for component in components:
        if component.licences is None:
            continue
        found = licence_of(component, policy)
        if not found:
            said = " or ".join(component.licences) or "nothing"
            lines.append(
                f"{component.name} {component.version} says {said} of its licence:"
                f" read its licence file, and name the SPDX expression in {POLICY_FILE.name}"
            )
        elif not is_allowed(found, policy):
            lines.append(
                f"{component.name} {component.version} is under {found}, which may not be shipped: do without it"
            )
    return lines


def _unwrapped(expression: str) -> str:
    """Remove parentheses around the whole expression."""
    while expression.startswith("(") and _closing(expression) == len(expression) - 1:
        expression = expression[1:-1].strip()
    return expression


def _closing(expression: str) -> int:
    depth = 0
    for place, character in enumerate(expression):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return place
    return -1


def _split(expression: str, word: str) -> list[str]:
    """Split at each `word` outside of parentheses."""
    parts, depth, begin = [], 0, 0
    for place, character in enumerate(expression):
        depth += (character == "(") - (character == ")")
        if depth == 0 and expression.startswith(word, place):
            parts.append(expression[begin:place])
            begin = place + len(word)
    return [*parts, expression[begin:]]
