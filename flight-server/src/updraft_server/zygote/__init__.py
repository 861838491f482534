# SPDX-License-Identifier: Apache-2.0
"""Zygote: the process that workers are forked from. It preloads what they need, forks, watches and reaps them."""
