# SPDX-License-Identifier: Apache-2.0
"""The notebooks of docs/examples/notebooks run from scratch, and print what is saved in them: `make test-notebooks`."""
