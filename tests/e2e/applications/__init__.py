# SPDX-License-Identifier: Apache-2.0
"""Spark applications that tests start as processes of their own, because they need other settings than the suite's.

Each compares stock execution with the pool (`tests.e2e.sides`) and prints one JSON object: case -> what differs, empty
when nothing does.
"""
