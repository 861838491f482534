# SPDX-License-Identifier: Apache-2.0
"""Checks of a reachable service: its token, its versions, and a round trip of one batch or file."""

from collections.abc import Callable, Mapping

import grpc
import pyarrow as pa
from pyarrow import flight

from updraft.client.credentials import Credentials
from updraft.errors import PermissionDeniedError, UpdraftError
from updraft.protocol import PROTOCOL_VERSION
from updraft_cli.doctor.driver import Driver, minor
from updraft_cli.doctor.finding import Findings
from updraft_cli.doctor.identity import check_caller, what_to_do
from updraft_cli.doctor.signature import check_signature
from updraft_cli.service import (
    CHECK_SIGNATURE_ACTION,
    POOL_STATUS_ACTION,
    WRITER_STATUS_ACTION,
    Service,
    Status,
    first_line,
)

_REFUSED = "the service's operator decides what this client may do, in its identities file: show them this message"


def check_service(
    service: Service,
    credentials: Credentials,
    driver: Driver | None,
    findings: Findings,
    confs: Mapping[str, str],
    *,
    tenant: str = "",
) -> None:
    """Run all checks of a service.

    `driver` is the Python that will ship functions to the service, or None. `confs` is the job's conf, and `tenant` is
    the tenant that the conf names.
    """
    actions = _answered(findings, service.actions, credentials)
    if actions is None:
        return
    findings.ok("token", "the service accepts this client")
    is_writer = WRITER_STATUS_ACTION in actions
    if not is_writer and POOL_STATUS_ACTION not in actions:
        findings.error("service", "a Flight service that is neither a pool nor a writer", "name another endpoint")
        return
    status = service.status()
    _check_state(status["state"], findings)
    _check_protocol(status["protocol_version"] if is_writer else status["versions"]["protocol"], findings)
    if driver is not None and not is_writer:
        _check_driver(status, driver, findings)
    caller = service.whoami()
    if caller is not None:
        ships = driver is not None and not is_writer
        wanted = ("write",) if is_writer else ("session",) if ships else ()
        check_caller(caller, wanted, tenant, findings)
    # Even a pool that accepts unsigned functions refuses functions that are signed with an unknown key.
    if driver is not None and not is_writer and CHECK_SIGNATURE_ACTION in actions:
        check_signature(service, confs, findings, required=status["signatures_required"])
    if findings.failed:
        return
    if is_writer:
        _check_round_trip("a file of {} rows was written, returned and read", service.write_a_file, findings)
    elif caller is not None and "call" not in caller.scopes:
        findings.ok("round trip", "not tried: it runs a registered function, which requires the scope call")
    else:
        _check_round_trip("a worker returned {} rows unchanged", service.send_a_batch, findings)


def _check_state(state: str, findings: Findings) -> None:
    if state == "ready":
        findings.ok("state", "ready")
    else:
        findings.warning("state", state, "check again in a moment; other pods of the service accept tasks meanwhile")


def _check_protocol(theirs: int, findings: Findings) -> None:
    if theirs == PROTOCOL_VERSION:
        findings.ok("protocol", f"version {theirs} on both sides")
    else:
        findings.error(
            "protocol",
            f"the service speaks version {theirs} of the protocol, the connector of this release {PROTOCOL_VERSION}",
            "use a connector jar and an image of the same release",
        )


def _check_driver(status: Status, driver: Driver, findings: Findings) -> None:
    versions = status["versions"]
    if not status["session_functions_allowed"]:
        findings.error(
            "functions",
            "the pool refuses session functions",
            "start it with --session-functions unsigned or signed (workers.sessionFunctions of the chart)",
        )
    for what, ours, theirs in (
        ("Python", driver.python, versions["python"]),
        ("pyspark", driver.pyspark, versions["pyspark"]),
    ):
        check = what.lower()
        if not theirs:
            findings.error(check, f"the pool has no {what}", "use a pool image that can run session functions")
        elif not ours:
            findings.warning(
                check,
                f"the pool has {what} {theirs}; the driver's version is not known here",
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
    except (flight.FlightUnauthorizedError, PermissionDeniedError) as error:
        findings.error("round trip", first_line(error), _REFUSED)
    except (pa.ArrowException, grpc.RpcError, UpdraftError, ValueError, OSError) as error:
        findings.error("round trip", first_line(error), "the service's log has the details")


def _answered(findings: Findings, ask: Callable[[], set[str]], credentials: Credentials) -> set[str] | None:
    try:
        return ask()
    except flight.FlightUnauthenticatedError as error:
        findings.error("token", first_line(error), what_to_do(credentials))
    except flight.FlightUnauthorizedError as error:
        # The token is valid, but grants more than the service lets its issuer grant.
        findings.error("identity", first_line(error), _REFUSED)
    except pa.ArrowNotImplementedError:
        findings.error(
            "service",
            "the port speaks gRPC, but not Flight",
            "use the Flight port: 8815 of a pool, 8816 of a writer; the ports 10 higher are only for probes",
        )
    except (pa.ArrowException, OSError) as error:
        findings.error("service", first_line(error), "check that this is the Flight port, not the metrics port")
    return None
