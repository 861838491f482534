# SPDX-License-Identifier: Apache-2.0
"""A writer whose storage is an emulator of an object store or an HDFS: `make test-storages`."""
