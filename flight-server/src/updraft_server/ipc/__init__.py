# SPDX-License-Identifier: Apache-2.0
"""Messages between the front, the supervisor, the zygote and the workers. Both sides import this package.

The front and a worker exchange frames and assignments. The front and the zygote exchange packets. The supervisor passes
settings to the front and the zygote, and receives their heartbeats.
"""
