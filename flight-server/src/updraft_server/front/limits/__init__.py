# SPDX-License-Identifier: Apache-2.0
"""Limits of running exchanges, and who is to blame when one ends."""
