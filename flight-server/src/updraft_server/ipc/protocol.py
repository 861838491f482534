# SPDX-License-Identifier: Apache-2.0
"""What the protocol fixes and both front and worker check: nothing of the transport, nothing of pyspark."""

import re

PROTOCOL_VERSION = 1

# Environment variables that a command may set for its exchange: those that PySpark's worker reads.
SESSION_ENVIRONMENT = frozenset(
    {
        "SPARK_HIDE_TRACEBACK",
        "SPARK_SIMPLIFIED_TRACEBACK",
        "SPARK_TRACEBACK_WITH_LOCALS",
        "PYTHON_UDF_BATCH_SIZE",
        "TZ",
        "PYSPARK_SPARK_SESSION_UUID",
        "SPARK_JOB_ARTIFACT_UUID",
        "OMP_NUM_THREADS",
        "PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS",
    }
)

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# What steers the dynamic loader, the interpreter or the pool itself is not the user's to set.
_RESERVED_VARIABLES = frozenset({"PATH", "IFS", "ENV", "BASH_ENV", "GCONV_PATH", "NLSPATH", "VIRTUAL_ENV"})
_RESERVED_PREFIXES = ("LD_", "DYLD_", "PYTHON", "PYSPARK_", "SPARK_", "UPDRAFT_", "MALLOC_", "GLIBC_", "BASH_FUNC_")


def is_user_variable(name: str) -> bool:
    """Whether a user may set the environment variable for a function."""
    return (
        _VARIABLE.fullmatch(name) is not None
        and name not in _RESERVED_VARIABLES
        and not name.startswith(_RESERVED_PREFIXES)
    )
