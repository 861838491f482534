# SPDX-License-Identifier: Apache-2.0
"""Messages between the front, the supervisor, the zygote and the workers: both trust domains import this package.

Frames and assignments pass between the front and a worker, packets between the front and the zygote, settings and
heartbeats between a process and the supervisor.
"""
