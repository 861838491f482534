# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, rendered by Helm: what stands in its manifests, for the values that people set."""
