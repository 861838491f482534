# SPDX-License-Identifier: Apache-2.0
"""Verdicts, pages and charts that the benchmarks of tests/programs/bench make from measurements."""
