# SPDX-License-Identifier: Apache-2.0
"""How long work that nobody has limited may take."""

LONGEST_WORK_SECONDS = 86_400.0
"""More than honest work takes, but a worker is not lost for ever."""
