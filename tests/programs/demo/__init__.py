# SPDX-License-Identifier: Apache-2.0
"""Demo (`make demo`): one job on stock PySpark and on a pool, side by side. A writer stores the result."""
