# SPDX-License-Identifier: Apache-2.0
"""What the protocol fixes and both front and worker check: nothing of the transport, nothing of pyspark."""

PROTOCOL_VERSION = 1

# Environment variables that a command may set for its exchange: those that PySpark's worker reads.
SESSION_ENVIRONMENT = frozenset(
    {
        "SPARK_HIDE_TRACEBACK",
        "SPARK_SIMPLIFIED_TRACEBACK",
        "PYTHON_UDF_BATCH_SIZE",
        "TZ",
        "PYSPARK_SPARK_SESSION_UUID",
        "SPARK_JOB_ARTIFACT_UUID",
    }
)
