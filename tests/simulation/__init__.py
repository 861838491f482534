# SPDX-License-Identifier: Apache-2.0
"""Simulated cluster that runs the product's own policy in virtual time (see README.md)."""
