# SPDX-License-Identifier: Apache-2.0
"""The servers of `make bench-functions`, each with x + 1 for a row and for a batch.

All but `ours` are programs of their own, in the environment of the peers. They print their port.
"""
