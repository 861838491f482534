# SPDX-License-Identifier: Apache-2.0
"""The chart and its images on a real Kubernetes, with a real Spark that calls them."""
