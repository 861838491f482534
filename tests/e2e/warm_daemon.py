# SPDX-License-Identifier: Apache-2.0
"""PySpark's own daemon, with its worker's modules imported once before it forks workers, as a pool's zygote has them.

Each failure costs stock a worker, and importing is most of what a new one does: PySpark's daemon leaves it to them.
"""

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
