# SPDX-License-Identifier: Apache-2.0
"""Delta, Iceberg and Hive next to Updraft, in one session: `make test-tables`."""
