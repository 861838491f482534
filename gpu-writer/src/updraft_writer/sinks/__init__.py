# SPDX-License-Identifier: Apache-2.0
"""Sinks for encoded bytes. `sink` defines the interface, and `roots` decides which paths may be written."""
