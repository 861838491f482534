# SPDX-License-Identifier: Apache-2.0
"""Metrics by Spark application stay bounded, whatever ids clients send."""

from updraft_server.front.relay.transfer import Transfer
from updraft_server.front.status.metrics import KEPT_APPLICATIONS, Applications


def _names(applications: Applications) -> list[str]:
    (rows,) = (family for family in applications.collect() if family.name == "updraft_application_rows")
    return [sample.labels["application"] for sample in rows.samples]


def test_applications_that_were_seen_last_are_kept() -> None:
    applications = Applications(tuple)
    for number in range(KEPT_APPLICATIONS + 1):
        applications.ended({"application": "first"}, "ok", Transfer())
        applications.ended({"application": str(number)}, "ok", Transfer())
    assert len(_names(applications)) == KEPT_APPLICATIONS
    assert {"first", str(KEPT_APPLICATIONS)} <= set(_names(applications))
    assert "0" not in _names(applications)


def test_a_client_that_names_no_application_is_none() -> None:
    applications = Applications(tuple)
    applications.ended({"function": "echo"}, "ok", Transfer())
    assert _names(applications) == []
