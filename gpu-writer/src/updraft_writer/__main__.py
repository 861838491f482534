# SPDX-License-Identifier: Apache-2.0
"""Entry point of `python -m updraft_writer`, for starting the writer with a particular Python."""

from updraft_writer.cli import main

main()
