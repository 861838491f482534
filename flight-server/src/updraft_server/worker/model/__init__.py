# SPDX-License-Identifier: Apache-2.0
"""Functions whose rows are joined across exchanges: each replica is a process of its own, forked by the zygote.

`row_queue` is the policy, without any transport; `process` is the loop of a model process, `connection` its end of a
worker's socket, and `client` the worker's end.
"""
