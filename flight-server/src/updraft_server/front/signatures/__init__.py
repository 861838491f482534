# SPDX-License-Identifier: Apache-2.0
"""Drivers' signatures on session functions: the known signers, and the checks of a signature."""
