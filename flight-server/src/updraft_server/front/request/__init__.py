# SPDX-License-Identifier: Apache-2.0
"""Parser of requests, and checks that the pool can run what they ask for."""
