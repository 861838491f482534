# SPDX-License-Identifier: Apache-2.0
"""Spark applications that run in their own processes because they need different settings than the suite.

Each compares stock execution with the pool (`tests.e2e.sides`) and prints one JSON object: case -> difference, empty if
there is none.
"""
