# SPDX-License-Identifier: Apache-2.0
"""Kill things: no wrong row, no hang, and the pool is whole again (`make bench-healing` says how soon)."""
