# SPDX-License-Identifier: Apache-2.0
"""The command `updraft` against real pools and writers; with a cluster it is tested in tests/kube."""
