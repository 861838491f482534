# SPDX-License-Identifier: Apache-2.0
"""A pool: a front that speaks Flight, a zygote, and the workers that run functions."""
