# SPDX-License-Identifier: Apache-2.0
"""Signatures of drivers on session functions: the known signers, and the checks of a signature."""
