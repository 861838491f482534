# SPDX-License-Identifier: Apache-2.0
"""Helm chart, rendered by Helm for the values that users set."""
