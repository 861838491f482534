# SPDX-License-Identifier: Apache-2.0
"""Shared code of the suites and programs: a local pool, writer and Spark, and a client that speaks raw gRPC."""
