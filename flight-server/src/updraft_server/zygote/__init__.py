# SPDX-License-Identifier: Apache-2.0
"""Zygote: the process that workers are forked from. It loads what workers need, and forks, watches and reaps them."""
