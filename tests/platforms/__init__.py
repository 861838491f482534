# SPDX-License-Identifier: Apache-2.0
"""Guides for the platforms that Spark runs on, typed as they are written, and a job on the result."""
