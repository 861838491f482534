# SPDX-License-Identifier: Apache-2.0
"""Kills of processes: no wrong row, no hang, and the pool recovers (`make bench-healing` measures how soon)."""
