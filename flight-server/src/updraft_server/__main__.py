# SPDX-License-Identifier: Apache-2.0
"""Entry point of `python -m updraft_server`, which runs the command with that Python."""

from updraft_server.cli import main

main()
