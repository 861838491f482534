# SPDX-License-Identifier: Apache-2.0
"""The subcommands: each parses its options, asks services or the cluster, and prints the answer."""
