# SPDX-License-Identifier: Apache-2.0
"""Programs, as opposed to tests, that need several components; each is run by a target of the Makefile."""
