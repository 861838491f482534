# SPDX-License-Identifier: Apache-2.0
"""The error of a definition that makes no function."""


class DeclarationError(TypeError):
    """Raised when a function is defined: its hints, its options or its methods cannot be called by a pool."""
