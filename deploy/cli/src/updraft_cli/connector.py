# SPDX-License-Identifier: Apache-2.0
"""What the CLI knows of the connector: which jar runs on which Spark, and the names of its settings.

`make versions` writes the first; a test holds the second against docs/reference/connector.md.
"""

JARS = {
    # spark-versions.toml: jars
    "4.3": "4.2",
    "4.2": "4.2",
    "4.1": "4.1",
    "4.0": "4.0",
    # spark-versions.toml: end
}

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
    "replyTimeout",
    "deadline",
    "windowBytes",
    "batchBytes",
    "maxMessageBytes",
    "unsupported",
)
_UDF = (
    "enabled",
    "fallback",
    "windowBatches",
    "maxReplays",
    "replayBytes",
    "deterministic",
    "signingKeyFile",
    "signatureLifetime",
)
_WRITE = ("delivery", "asynchronous", "maxInFlightBytes", "holdGpu")

SETTINGS = frozenset(
    ["spark.updraft.trace.endpoint"]
    + [f"spark.updraft.udf.{name}" for name in _CONNECTION + _UDF]
    + [f"spark.updraft.write.{name}" for name in _CONNECTION + _WRITE]
)
