# SPDX-License-Identifier: Apache-2.0
"""Chart and its images on a real Kubernetes, with a real Spark that calls them."""
