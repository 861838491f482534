# SPDX-License-Identifier: Apache-2.0
"""Subcommands, each of which parses its options, asks services or the cluster, and prints the answer."""
