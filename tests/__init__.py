# SPDX-License-Identifier: Apache-2.0
"""Checks that need two components at once (README.md here is the map); what one can prove alone is in its own tests."""
