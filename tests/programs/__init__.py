# SPDX-License-Identifier: Apache-2.0
"""Programs that need several components and are no tests: each is run by a target of the Makefile."""
