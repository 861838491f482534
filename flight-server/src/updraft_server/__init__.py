# SPDX-License-Identifier: Apache-2.0
"""Updraft's pool: a front that speaks Flight, a zygote, and the workers that run functions."""
