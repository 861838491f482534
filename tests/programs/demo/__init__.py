# SPDX-License-Identifier: Apache-2.0
"""The demo: one job on stock PySpark and on a pool, side by side, its result through a writer (`make demo`)."""
