# SPDX-License-Identifier: Apache-2.0
"""What the suites and the programs share: a local pool, writer and Spark, a client that speaks raw gRPC."""
