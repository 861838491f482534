# SPDX-License-Identifier: Apache-2.0
"""Ten thousand simulated executors on two hundred pods, and the small measured system that calibrates them."""
