# SPDX-License-Identifier: Apache-2.0
"""Relay of messages between a call and its worker."""
