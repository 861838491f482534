# SPDX-License-Identifier: Apache-2.0
"""What the front, the supervisor, the zygote and the workers say to each other: both trust domains import it.

Frames and assignments pass between the front and a worker, packets between the front and the zygote, settings and
heartbeats between a process and the supervisor.
"""
