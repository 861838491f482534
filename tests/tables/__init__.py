# SPDX-License-Identifier: Apache-2.0
"""Delta, Iceberg and Hive beside Updraft, in one session: `make test-tables`."""
