# SPDX-License-Identifier: Apache-2.0
"""The process that workers are forked from: it preloads what they need, forks them, watches and reaps them."""
