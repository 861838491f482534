# SPDX-License-Identifier: Apache-2.0
"""Registered functions: how a module registers them, and how a worker runs one."""
