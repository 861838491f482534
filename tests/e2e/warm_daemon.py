# SPDX-License-Identifier: Apache-2.0
"""PySpark's own daemon, with its worker's modules imported once before it forks workers, as in a pool's zygote.

Each failure costs stock a worker, and PySpark's daemon leaves the imports, most of a new worker's time, to the worker.
"""

import gc
import sys

import pandas  # noqa: F401
import pyarrow.pandas_compat  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    # A new worker makes each finder forget its cache, and those of PySpark's zip reread its whole directory at once, a
    # finder for each package: ten times as much work as everything else. New finders know what was read before.
    sys.path_importer_cache.clear()
    # Workers collect garbage after each task, and objects from before the fork are not garbage.
    gc.collect()
    gc.freeze()
    manager()
