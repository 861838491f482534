# SPDX-License-Identifier: Apache-2.0
"""`make soak`: Spark jobs under which processes are killed or restarted; the soak checks all rows of the jobs."""
