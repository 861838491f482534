# SPDX-License-Identifier: Apache-2.0
"""Promises of proto/README.md about the wire, tested on a real pool by clients that share no code with it."""
