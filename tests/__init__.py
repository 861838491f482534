# SPDX-License-Identifier: Apache-2.0
"""Checks that need two components at once; what one component can prove alone lives in its own tests."""
