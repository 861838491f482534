# SPDX-License-Identifier: Apache-2.0
"""Command `updraft` against real pools and writers; tests/kube tests it with a cluster."""
