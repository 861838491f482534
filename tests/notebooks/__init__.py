# SPDX-License-Identifier: Apache-2.0
"""Notebooks of docs/examples/notebooks run from scratch, and print their saved outputs: `make test-notebooks`."""
