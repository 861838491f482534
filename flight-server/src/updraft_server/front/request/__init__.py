# SPDX-License-Identifier: Apache-2.0
"""Requests: parsed, checked against what the pool can run."""
