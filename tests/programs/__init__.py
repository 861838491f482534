# SPDX-License-Identifier: Apache-2.0
"""Programs (not tests) that need several components. A target of the Makefile runs each program."""
