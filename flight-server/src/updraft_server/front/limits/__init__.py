# SPDX-License-Identifier: Apache-2.0
"""Limits of running exchanges, and the verdict on exchanges that fail."""
