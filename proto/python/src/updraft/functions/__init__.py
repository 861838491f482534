# SPDX-License-Identifier: Apache-2.0
"""What the author of a registered function imports."""

from updraft.functions.batching import Batching

__all__ = ["Batching"]
