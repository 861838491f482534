# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, rendered by Helm for the values that people set."""
