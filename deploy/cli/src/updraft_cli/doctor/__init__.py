# SPDX-License-Identifier: Apache-2.0
"""Why a Spark job cannot reach a pool or a writer: checks, in the order in which a task would fail at them."""
