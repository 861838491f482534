# SPDX-License-Identifier: Apache-2.0
"""`python -m updraft_server`, for whoever starts it with a certain Python."""

from updraft_server.cli import main

main()
