# SPDX-License-Identifier: Apache-2.0
"""Parser of requests, and checks of what they ask for against what the pool can run."""
