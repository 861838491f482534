# SPDX-License-Identifier: Apache-2.0
"""Requests: parsed, and checked against what the pool can run."""
