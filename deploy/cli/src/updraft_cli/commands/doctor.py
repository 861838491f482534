# SPDX-License-Identifier: Apache-2.0
"""`updraft doctor`: check a Spark conf, or an endpoint alone, against the services that it names."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

import grpc
import pyarrow as pa

from updraft.client.credentials import Credentials, CredentialsError
from updraft.client.endpoint import Endpoint
from updraft.service.settings import setting
from updraft_cli.doctor.confs import SparkConfError, check_session, credentials_of, endpoint_of, spark_conf
from updraft_cli.doctor.connection import check_connection
from updraft_cli.doctor.driver import Driver, driver_of
from updraft_cli.doctor.finding import Finding, Findings, Level
from updraft_cli.doctor.python_workers import check_python_workers
from updraft_cli.doctor.service import check_service
from updraft_cli.doctor.tables import check_tables
from updraft_cli.options import Options
from updraft_cli.output import print_json, print_line
from updraft_cli.service import Service, first_line

_PEERS = {"udf": "spark.updraft.udf", "write": "spark.updraft.write"}


class Doctor(Options):
    """Check whether a Spark job can reach its pool and its writer, and say how to fix each problem.

    Run it on the driver's machine or in the driver's image, and pass the conf that the job gives to spark-submit: its
    file with --defaults, single settings with --conf. The command checks jar, extension, endpoints, DNS, reachability,
    TLS, tokens, what the client's identity may do, the releases of Delta and Iceberg if their tables go through the
    writer, and the versions of protocol, Python and pyspark. Then it sends a batch through a worker and a file through
    the writer. With --endpoint instead of a conf, it checks one service. With --python-workers, it also runs a small
    Spark application and checks that Spark's Python workers run on the pool.

    Exits with 1 if there are errors, otherwise with 0; warnings do not count.
    """

    examples: ClassVar[str] = """examples:
  updraft doctor --defaults $SPARK_HOME/conf/spark-defaults.conf
  updraft doctor --conf spark.updraft.udf.endpoint=grpc://updraft-pool:8815 --python /opt/job/bin/python
  updraft doctor --defaults spark-defaults.conf --python-workers
  updraft doctor --endpoint grpc+tls://writer.data:8816 --ca-file ca.crt --token-file token
"""

    defaults: Path | None = setting("The job's spark-defaults.conf.", default=None)
    conf: list[str] = setting(
        "A setting of the job as name=value, which overrides the file. Can be repeated.", default=[]
    )
    python_workers: bool = setting(
        "Also run a small Spark application with this conf and check where each kind of Python worker runs. On a "
        "cluster this needs an executor.",
        default=False,
    )
    python: str = setting("The driver's Python; defaults to that of the conf, else to this one.", default="")

    def cli_cmd(self) -> None:
        """Print the findings; exits with 1 if one is an error."""
        found = self.findings()
        if self.output == "json":
            print_json([asdict(finding) for finding in found])
        else:
            _print(found)
        sys.exit(any(finding.level is Level.ERROR for finding in found))

    def findings(self) -> Sequence[Finding]:
        """Return the findings, in the order in which a task would fail; raises SparkConfError."""
        if self.endpoint and self.python_workers:
            raise SparkConfError("--python-workers needs the conf of a job: leave out --endpoint")
        return self._check_endpoint() if self.endpoint else self._check_conf()

    def _check_endpoint(self) -> Sequence[Finding]:
        findings = Findings(self.endpoint)
        try:
            self._check_peer(Endpoint.parse(self.endpoint), self.credentials, None, findings, {})
        except CredentialsError as error:
            findings.error("credentials", str(error), "correct the path, or mount the file")
        return findings.all

    def _check_conf(self) -> Sequence[Finding]:
        confs = spark_conf(self.defaults, self.conf)
        if not any(f"{prefix}.endpoint" in confs for prefix in _PEERS.values()):
            raise SparkConfError(
                "the conf has no endpoint, so Updraft does nothing: set spark.updraft.udf.endpoint or "
                "spark.updraft.write.endpoint, or give --endpoint"
            )
        driver = driver_of(confs, self.python)
        session = Findings("session")
        check_session(confs, driver, session)
        check_tables(confs, driver, session)
        found = session.all
        for subject, prefix in _PEERS.items():
            if f"{prefix}.endpoint" not in confs:
                continue
            findings = Findings(subject)
            endpoint = endpoint_of(confs, prefix, findings)
            credentials = credentials_of(confs, prefix, endpoint.transport, findings) if endpoint else None
            if endpoint is not None and credentials is not None:
                ships = driver if subject == "udf" else None
                tenant = confs.get(f"{prefix}.tenant", "")
                self._check_peer(endpoint, credentials, ships, findings, confs, tenant=tenant)
            found = [*found, *findings.all]
        if self.python_workers:
            findings = Findings("workers")
            if any(finding.level is Level.ERROR for finding in found):
                findings.warning("application", "not started, because of the errors above", "correct them first")
            else:
                check_python_workers(confs, driver, self.python, findings)
            found = [*found, *findings.all]
        return found

    def _check_peer(
        self,
        endpoint: Endpoint,
        credentials: Credentials,
        driver: Driver | None,
        findings: Findings,
        confs: Mapping[str, str],
        *,
        tenant: str = "",
    ) -> None:
        check_connection(endpoint, credentials, self.timeout_seconds, findings)
        if findings.failed:
            return
        try:
            with Service(endpoint, credentials, self.timeout_seconds) as service:
                check_service(service, credentials, driver, findings, confs, tenant=tenant)
        except (grpc.RpcError, pa.ArrowException) as error:
            findings.error("service", first_line(error), "the service answered earlier checks: see its log")


def _print(found: Sequence[Finding]) -> None:
    widths = [max(len(getattr(finding, name)) for finding in found) for name in ("subject", "check")]
    for finding in found:
        start = f"{finding.level.value:8}{finding.subject:{widths[0]}}  {finding.check:{widths[1]}}  "
        print_line(start + finding.found)
        if finding.advice:
            print_line(f"{' ' * (len(start) - 3)}-> {finding.advice}")
    errors = sum(finding.level is Level.ERROR for finding in found)
    print_line()
    print_line(f"Errors: {errors}." if errors else "No errors.")
