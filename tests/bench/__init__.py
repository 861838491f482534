# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of tests/programs/bench make of their measurements: verdicts, pages, charts."""
