# SPDX-License-Identifier: Apache-2.0
"""Why a Spark job does not reach a pool or a writer: checks in the order in which a task would fail, each a finding."""
