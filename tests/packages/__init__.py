# SPDX-License-Identifier: Apache-2.0
"""The distributions, built and installed as a user would install them: without the workspace."""
