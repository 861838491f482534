# SPDX-License-Identifier: Apache-2.0
"""`make soak`: Spark jobs whose rows are all checked, while the processes under them are killed or restarted."""
