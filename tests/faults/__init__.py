# SPDX-License-Identifier: Apache-2.0
"""Tests that kill processes: no row is wrong, no call hangs, the pool recovers (`make bench-healing` times this)."""
