# SPDX-License-Identifier: Apache-2.0
"""Names of the connector's settings; a test compares them with docs/reference/connector.md."""

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
