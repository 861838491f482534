# SPDX-License-Identifier: Apache-2.0
"""Speculative tasks that write, on a Spark of two hosts, one of them slow: `make test-speculation`."""
