# SPDX-License-Identifier: Apache-2.0
"""PySpark's own daemon, with its worker's modules imported once before it forks workers, as a pool's zygote has them.

Each failure costs stock a worker, and importing is most of what a new one does: PySpark's daemon leaves it to them.
"""

import gc
import sys

import pandas  # noqa: F401
import pyarrow.pandas_compat  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    # A new worker makes each finder forget what it knows, and those of PySpark's zip read its whole directory again at
    # once, a finder for each package: ten times as much work as all else. New finders know what was read before.
    sys.path_importer_cache.clear()
    # Workers collect garbage after each task, and what was there before them is none.
    gc.collect()
    gc.freeze()
    manager()
