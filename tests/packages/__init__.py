# SPDX-License-Identifier: Apache-2.0
"""Distributions, built and installed as a user would install them: without the workspace."""
