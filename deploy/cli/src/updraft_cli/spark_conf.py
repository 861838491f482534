# SPDX-License-Identifier: Apache-2.0
"""Conf of a Spark job: spark-defaults.conf overridden by --conf, as in spark-submit."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import javaproperties

from updraft.client.credentials import CredentialsError, read


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
    """Rejoin the confs that the command line has split at commas: only the start of a conf begins with `spark.`."""
    joined: list[str] = []
    for part in confs:
        if joined and not part.startswith("spark."):
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return joined
