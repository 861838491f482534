# SPDX-License-Identifier: Apache-2.0
"""Servers of `make bench-functions`, each with x + 1 for a row and for a batch.

All but `ours` are programs in the environment of the peers, and print their port.
"""
