# SPDX-License-Identifier: Apache-2.0
"""Servers of `make bench-functions`. Each has two functions that compute x + 1: one for a row, one for a batch.

All except `ours` are programs that run in the Python environment of the compared projects and print their port.
"""
