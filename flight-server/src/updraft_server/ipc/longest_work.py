# SPDX-License-Identifier: Apache-2.0
"""Time limit of work that has no other limit."""

LONGEST_WORK_SECONDS = 86_400.0
"""Longer than honest work takes, and short enough that a worker is not lost for ever."""
