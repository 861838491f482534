# SPDX-License-Identifier: Apache-2.0
"""What a service that can be reached says: whether it knows the token, what it runs, whether a batch comes back."""

from collections.abc import Callable

import grpc
import pyarrow as pa
from pyarrow import flight

from updraft.errors import UpdraftError
from updraft.protocol import PROTOCOL_VERSION
from updraft_cli.doctor.driver import Driver, minor
from updraft_cli.doctor.finding import Findings
from updraft_cli.service import POOL_STATUS_ACTION, WRITER_STATUS_ACTION, Service, Status, first_line


def check_service(service: Service, driver: Driver | None, findings: Findings) -> None:
    """Ask a service everything; `driver` is who will ship functions, if anybody."""
    actions = _answered(findings, service.actions)
    if actions is None:
        return
    findings.ok("token", "this client is let in")
    is_writer = WRITER_STATUS_ACTION in actions
    if not is_writer and POOL_STATUS_ACTION not in actions:
        findings.error("service", "a Flight service that is neither a pool nor a writer", "name another endpoint")
        return
    status = service.status()
    _check_state(status["state"], findings)
    _check_protocol(status["protocol_version"] if is_writer else status["versions"]["protocol"], findings)
    if driver is not None and not is_writer:
        _check_driver(status, driver, findings)
    if findings.failed:
        return
    if is_writer:
        _check_round_trip("a file of {} rows was written, returned and read", service.write_a_file, findings)
    else:
        _check_round_trip("a worker has returned {} rows as they were", service.send_a_batch, findings)


def _check_state(state: str, findings: Findings) -> None:
    if state == "ready":
        findings.ok("state", "ready")
    else:
        findings.warning("state", state, "ask again in a moment; of several pods the others take the tasks")


def _check_protocol(theirs: int, findings: Findings) -> None:
    if theirs == PROTOCOL_VERSION:
        findings.ok("protocol", f"version {theirs} on both sides")
    else:
        findings.error(
            "protocol",
            f"the service speaks version {theirs} of the protocol, the connector of this release {PROTOCOL_VERSION}",
            "use a connector's jar and an image of the same release",
        )


def _check_driver(status: Status, driver: Driver, findings: Findings) -> None:
    versions = status["versions"]
    if not status["session_functions_allowed"]:
        findings.error(
            "functions",
            "the pool refuses what a session ships",
            "start it with --allow-session-functions (allowSessionFunctions of the chart)",
        )
    for what, ours, theirs in (
        ("Python", driver.python, versions["python"]),
        ("pyspark", driver.pyspark, versions["pyspark"]),
    ):
        check = what.lower()
        if not theirs:
            findings.error(check, f"the pool has no {what}", "use an image of a pool that runs session functions")
        elif not ours:
            findings.warning(
                check,
                f"the pool has {what} {theirs}; that of the driver is not known here",
                "run this in the driver's environment, or name its interpreter with --python",
            )
        elif minor(ours) != minor(theirs):
            findings.error(
                check,
                f"the driver has {what} {ours}, the pool {theirs}: their major.minor must be equal",
                f"use a pool with {what} {minor(ours)}, or a driver with {minor(theirs)}",
            )
        else:
            findings.ok(check, f"{what} {ours} here, {theirs} there")


def _check_round_trip(proof: str, attempt: Callable[[], int], findings: Findings) -> None:
    try:
        findings.ok("round trip", proof.format(f"{attempt():,}"))
    except (pa.ArrowException, grpc.RpcError, UpdraftError, ValueError, OSError) as error:
        findings.error("round trip", first_line(error), "look at the log of the service: it has the whole story")


def _answered(findings: Findings, ask: Callable[[], set[str]]) -> set[str] | None:
    try:
        return ask()
    except flight.FlightUnauthenticatedError as error:
        findings.error(
            "token",
            first_line(error),
            "give the token of the service: tokenFile names a file that holds it (key `token` of the chart's Secret)",
        )
    except pa.ArrowNotImplementedError:
        findings.error(
            "service",
            "gRPC is spoken there, but not Flight",
            "name the Flight port: 8815 of a pool, 8816 of a writer; 10 higher is for probes alone",
        )
    except (pa.ArrowException, OSError) as error:
        findings.error("service", first_line(error), "is it the Flight port, and not that of the metrics?")
    return None
