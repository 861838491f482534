# SPDX-License-Identifier: Apache-2.0
"""`python -m updraft_writer`, for whoever starts it with a certain Python."""

from updraft_writer.cli import main

main()
