# SPDX-License-Identifier: Apache-2.0
"""Results of checks, and advice on them."""

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """Severity: an ERROR fails every job, a WARNING may fail a job."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    subject: str
    """Subject of the check: `session`, `udf`, `write`, `workers`, or the endpoint that was given."""
    check: str
    level: Level
    found: str
    advice: str = ""
    """Advice to the user; empty if there is nothing to do."""


class Findings:
    """Findings about one subject, in the order of the checks."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self.all: list[Finding] = []

    def ok(self, check: str, found: str) -> None:
        """Add the result of a check without a problem."""
        self.all.append(Finding(self._subject, check, Level.OK, found))

    def warning(self, check: str, found: str, advice: str) -> None:
        """Add a problem that may fail a job."""
        self.all.append(Finding(self._subject, check, Level.WARNING, found, advice))

    def error(self, check: str, found: str, advice: str) -> None:
        """Add a problem that fails every job."""
        self.all.append(Finding(self._subject, check, Level.ERROR, found, advice))

    @property
    def failed(self) -> bool:
        """Whether a check has found an error. If so, checks that depend on that check can be skipped."""
        return any(finding.level is Level.ERROR for finding in self.all)
