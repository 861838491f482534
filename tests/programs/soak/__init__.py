# SPDX-License-Identifier: Apache-2.0
"""`make soak`: Spark jobs whose every row is checked, while what they run on is killed or restarted."""
