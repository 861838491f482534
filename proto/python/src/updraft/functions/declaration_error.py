# SPDX-License-Identifier: Apache-2.0
"""Error for an invalid function definition."""


class DeclarationError(TypeError):
    """Raised when a function is defined with hints, options or methods that a pool cannot use."""
