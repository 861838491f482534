# SPDX-License-Identifier: Apache-2.0
"""Checks of a Spark conf alone: whether the connector is present and switched on, its settings and its credentials."""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import javaproperties

from updraft.client.credentials import Credentials, CredentialsError, read
from updraft.client.endpoint import Endpoint, Transport
from updraft.spark.jars import EXTENSIONS, JARS, jar
from updraft_cli.doctor.driver import Driver, minor
from updraft_cli.doctor.finding import Findings

KEY_FILE = "spark.updraft.udf.signingKeyFile"

_ROOT = Path(__file__).parents[5]
"""Root of the checkout that contains this file, or some other directory if a wheel was installed."""
_JAR = re.compile(r"updraft-spark-(\d+\.\d+_2\.1[23])")
_FILE = re.compile(r"File$")
_EXECUTOR_MOUNT = re.compile(r"spark\.kubernetes\.executor\.(secrets\.|volumes\..*\.mount\.path$)")
JAR_CONFS = (
    "spark.jars",
    "spark.jars.packages",
    "spark.driver.extraClassPath",
    "spark.executor.extraClassPath",
    "spark.yarn.jars",
)


# Names of the connector's settings; a test compares them with docs/reference/connector.md.
_CONNECTION = (
    "endpoint",
    "token",
    "tokenFile",
    "tls.caFile",
    "tls.certificateFile",
    "tls.keyFile",
    "tenant",
    "connectTimeout",
    "acquireTimeout",
    "batchBytes",
    "unsupported",
)
_UDF = (
    "enabled",
    "fallback",
    "replyTimeout",
    "deadline",
    "windowBytes",
    "maxHelpers",
    "deterministic",
    "callOncePerValue",
    "signingKeyFile",
    "signatureLifetime",
)
_WRITE = ("delivery", "asynchronous", "encodings", "tables", "smallWriteBytes", "fallback")

SETTINGS = frozenset(
    ["spark.updraft.trace.endpoint"]
    + [f"spark.updraft.udf.{name}" for name in _CONNECTION + _UDF]
    + [f"spark.updraft.write.{name}" for name in _CONNECTION + _WRITE]
)


class SparkConfError(Exception):
    """Raised when a conf cannot be read; the message says what is expected."""


def spark_conf(defaults: Path | None, confs: Iterable[str]) -> Mapping[str, str]:
    """Return the merged conf; raises SparkConfError."""
    merged: dict[str, str] = {}
    if defaults is not None:
        try:
            found = javaproperties.loads(read(defaults))
        except (CredentialsError, ValueError) as error:
            raise SparkConfError(str(error)) from None
        merged.update({key: value.strip() for key, value in found.items()})
    for conf in _whole(confs):
        key, equals, value = conf.partition("=")
        if not equals or not key.startswith("spark."):
            raise SparkConfError(f"--conf {conf}: expected spark.some.setting=value")
        merged[key.strip()] = value.strip()
    return merged


def _whole(confs: Iterable[str]) -> list[str]:
    """Rejoin the confs that the command line has split at commas: a part without `spark.` continues the last conf."""
    joined: list[str] = []
    for part in confs:
        if joined and not part.startswith("spark."):
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return joined


def check_session(confs: Mapping[str, str], driver: Driver, findings: Findings) -> None:
    """Check everything that pools and writers share: the jar, the extension and the names of settings."""
    _check_jar(confs, driver, findings)
    extensions = [name.strip() for name in confs.get("spark.sql.extensions", "").split(",")]
    if EXTENSIONS in extensions:
        findings.ok("extension", EXTENSIONS)
    elif misspelt := [key for key, value in confs.items() if EXTENSIONS in value]:
        findings.error(
            "extension",
            f"{misspelt[0]} is not a setting of Spark: no function goes to a pool",
            "did you mean spark.sql.extensions?",
        )
    elif "spark.updraft.udf.endpoint" in confs:
        findings.error(
            "extension",
            f"spark.sql.extensions is {confs.get('spark.sql.extensions') or 'not set'}: no function goes to a pool",
            f"add {EXTENSIONS} to it before the session is created",
        )
    if confs.get("spark.updraft.udf.enabled", "true").lower() == "false":
        findings.warning(
            "settings", "spark.updraft.udf.enabled is false", "no function goes to a pool until it is true"
        )
    _check_mounts(confs, findings)
    for key in sorted(confs):
        if key.startswith("spark.updraft.") and key not in SETTINGS:
            near = difflib.get_close_matches(key, SETTINGS, n=1)
            advice = f"did you mean {near[0]}?" if near else "docs/reference/connector.md lists the settings"
            findings.error("settings", f"{key} is not a setting of the connector", advice)


def _check_jar(confs: Mapping[str, str], driver: Driver, findings: Findings) -> None:
    places = [part for conf in JAR_CONFS for part in re.split(r"[,:](?!//)", confs.get(conf, ""))]
    jars = {found[1]: place for place in places if (found := _JAR.search(place))}
    if not jars:
        findings.warning(
            "jar",
            "no setting names the connector's jar",
            f"unless it is in Spark's own jars folder, {_advice(driver)}",
        )
        return
    ours = minor(driver.pyspark)
    for built_for, place in jars.items():
        wanted = JARS.get(ours, [built_for])
        if built_for not in wanted:
            findings.error(
                "jar",
                f"{place} is for another version of Spark, not for {driver.pyspark}",
                f"use {' or '.join(f'updraft-spark-{name}' for name in wanted)}",
            )
        elif _is_missing(place):
            findings.error("jar", f"{place} does not exist", f"correct the path, or {_advice(driver)}")
        else:
            findings.ok("jar", place)
    if ours and ours not in JARS:
        findings.error("jar", f"there is no jar for Spark {driver.pyspark}", f"use one of Spark {', '.join(JARS)}")


def _advice(driver: Driver) -> str:
    """Advise how the driver gets a jar: from the wheel that contains it or, in a checkout, by building it."""
    if (_ROOT / "spark-connector/pom.xml").is_file():
        return "build the jar with `make connector` and name it in spark.jars"
    try:
        return f"set spark.jars to {jar(driver.pyspark or None)}"
    except (ModuleNotFoundError, ValueError):
        return "pip install updraft-spark, and set spark.jars to what updraft.spark.jar() returns"


def _check_mounts(confs: Mapping[str, str], findings: Findings) -> None:
    """Check whether the conf's files are mounted, because executors in pods see no other files."""
    files = {key: Path(value) for key, value in confs.items() if key.startswith("spark.updraft.") and _FILE.search(key)}
    if not confs.get("spark.master", "").startswith("k8s://") or "spark.kubernetes.executor.podTemplateFile" in confs:
        return
    mounts = [Path(value) for key, value in confs.items() if _EXECUTOR_MOUNT.match(key)]
    for key, path in sorted(files.items()):
        is_mounted = any(path.is_relative_to(mount) for mount in mounts)
        if key == KEY_FILE:
            if is_mounted:
                findings.error(
                    "mounts",
                    f"executors can read {path} of {key}: anybody who takes one over can sign as the driver",
                    "mount the key in the driver alone (spark.kubernetes.driver.secrets.<Secret>)",
                )
        elif not is_mounted:
            findings.warning(
                "mounts",
                f"no setting mounts {path} of {key} in the executors",
                f"mount its Secret at {path.parent} in driver and executors, with the pod template that the release's "
                "notes print (spark.kubernetes.executor.podTemplateFile)",
            )


def _is_missing(place: str) -> bool:
    uri = urlsplit(place)
    return uri.scheme in ("", "file") and uri.path.endswith(".jar") and not Path(uri.path).exists()


def endpoint_of(confs: Mapping[str, str], prefix: str, findings: Findings) -> Endpoint | None:
    """Return the endpoint under a prefix, or None if it is invalid."""
    try:
        endpoint = Endpoint.parse(confs[f"{prefix}.endpoint"])
    except ValueError as error:
        findings.error("endpoint", str(error), f"correct {prefix}.endpoint")
        return None
    findings.ok("endpoint", str(endpoint))
    return endpoint


def credentials_of(
    confs: Mapping[str, str], prefix: str, transport: Transport, findings: Findings
) -> Credentials | None:
    """Return the token and TLS files under a prefix, or None if they are unusable."""
    paths = {
        name: Path(value)
        for name in ("tls.caFile", "tls.certificateFile", "tls.keyFile")
        if (value := confs.get(f"{prefix}.{name}"))
    }
    for name, path in paths.items():
        if not path.is_file():
            findings.error(
                "tls", f"{prefix}.{name} names {path}, which does not exist", "correct the path, or mount it"
            )
    if ("tls.certificateFile" in paths) != ("tls.keyFile" in paths):
        findings.error("tls", "a certificate and its key go together", f"set {prefix}.tls.certificateFile and .keyFile")
    if paths and transport is not Transport.TLS:
        findings.warning("tls", "TLS files are set, but the endpoint does not use TLS", "use grpc+tls://")
    token = _token(confs, prefix, findings)
    if findings.failed:
        return None
    return Credentials(token, paths.get("tls.caFile"), paths.get("tls.certificateFile"), paths.get("tls.keyFile"))


def _token(confs: Mapping[str, str], prefix: str, findings: Findings) -> str:
    setting = f"{prefix}.tokenFile"
    if setting not in confs:
        return confs.get(f"{prefix}.token", "")
    try:
        token = read(Path(confs[setting])).strip()
    except CredentialsError as error:
        findings.error("token", f"{setting}: {error}", "mount the Secret in driver and executors, or correct the path")
        return ""
    if not token or len(token.split()) > 1:
        held = "more than one token" if token else "no token"
        findings.error(
            "token",
            f"{setting} = {confs[setting]} holds {held}",
            "use a file with one token: the key `token` of the chart's Secret, not `tokens`",
        )
    return token
