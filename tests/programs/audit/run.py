# SPDX-License-Identifier: Apache-2.0
"""`make audit`: read the bills of materials, check licenses against the policy, query OSV for known vulnerabilities.

The exit status is 1 if a package must not be shipped, or if a look-up failed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.programs.audit.bills import Component, read_bill
from tests.programs.audit.licences import licence_of, refused
from tests.programs.audit.policy import AuditError, Policy, read_policy
from tests.programs.audit.vulnerabilities import OSV, Finding, look_up


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit and print the findings; return 1 if any finding needs action."""
    options = _options(arguments)
    try:
        policy = read_policy()
        components = [
            component
            for language, path in (("Python", options.python), ("Java", options.java))
            if path is not None
            for component in read_bill(path, language)
        ]
        print(f"looking at {len(components)} packages of others", flush=True)
        _print_licences(components, policy)
        troubles = refused(components, policy)
        if options.offline:
            print("\nKnown vulnerabilities were not looked up (--offline).")
        else:
            troubles += _vulnerable(look_up(components, options.osv_url), policy)
            print(f"\nAsked {options.osv_url} for known vulnerabilities of all of them.")
    except AuditError as error:
        print(f"audit: {error}", file=sys.stderr)
        return 1
    for trouble in troubles:
        print(f"audit: {trouble}", file=sys.stderr)
    print(f"{len(troubles)} found" if troubles else "nothing found")
    return 1 if troubles else 0


def _print_licences(components: Sequence[Component], policy: Policy) -> None:
    known = [component for component in components if component.licences is not None]
    counts = Counter((component.language, licence_of(component, policy) or "unknown") for component in known)
    print(f"\n{'language':10}{'packages':>9}  licence")
    for (language, licence), count in sorted(counts.items(), key=lambda entry: (entry[0][0], -entry[1], entry[0][1])):
        print(f"{language:10}{count:>9}  {licence}")
    unseen = [component.name for component in components if component.licences is None]
    if unseen:
        print(f"\nNot installed here, so that their licences were not looked at: {', '.join(unseen)}")


def _vulnerable(findings: Sequence[Finding], policy: Policy) -> list[str]:
    today = datetime.now(UTC).date()
    return [
        f"{finding.component.name} {finding.component.version} has {finding.id} ({finding.severity}),"
        f" fixed in {' or '.join(finding.fixed) or 'no version yet'}: {finding.summary}"
        for finding in findings
        if not policy.ignores(finding.id, today)
    ]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make audit AUDIT=...", description=__doc__)
    parser.add_argument("--python", type=Path, help="CycloneDX bill of the wheels, from uv")
    parser.add_argument("--java", type=Path, help="CycloneDX bill of the connector's jar, from Maven")
    parser.add_argument("--osv-url", default=OSV, help=f"a service with OSV's API ({OSV})")
    parser.add_argument("--offline", action="store_true", help="do not look up vulnerabilities")
    options = parser.parse_args(arguments)
    if options.python is None and options.java is None:
        parser.error("name a bill by --python or --java")
    return options


if __name__ == "__main__":
    sys.exit(main())
