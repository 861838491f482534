# SPDX-License-Identifier: Apache-2.0
"""Attacks by a function on its neighbors and its pool, and attacks by a client from outside."""
