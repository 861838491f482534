# SPDX-License-Identifier: Apache-2.0
"""What a check has found, and what to do about it."""

import enum
from dataclasses import dataclass


class Level(enum.StrEnum):
    """How bad it is: an ERROR fails a job, a WARNING may."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's result."""

    subject: str
    """What was looked at: `udf`, `write`, or the endpoint that was named."""
    check: str
    level: Level
    found: str
    advice: str = ""
    """What to do; empty when nothing has to be done."""


class Findings:
    """Findings about one subject, in the order in which they were made."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self.all: list[Finding] = []

    def ok(self, check: str, found: str) -> None:
        """All is well."""
        self.all.append(Finding(self._subject, check, Level.OK, found))

    def warning(self, check: str, found: str, advice: str) -> None:
        """Something that may fail a job."""
        self.all.append(Finding(self._subject, check, Level.WARNING, found, advice))

    def error(self, check: str, found: str, advice: str) -> None:
        """Something that fails every job."""
        self.all.append(Finding(self._subject, check, Level.ERROR, found, advice))

    @property
    def failed(self) -> bool:
        """Whether there is an error: what builds on it need not be tried."""
        return any(finding.level is Level.ERROR for finding in self.all)
