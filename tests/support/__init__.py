# SPDX-License-Identifier: Apache-2.0
"""What the suites, the demo and the benchmark share: a local pool, a local Spark, a client that speaks raw gRPC."""
