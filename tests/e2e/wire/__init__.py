# SPDX-License-Identifier: Apache-2.0
"""What the last release said on the wire, and what this one makes of it.

`0.1.jsonl` was recorded by `make record-wire` before the first release. It is recorded again at each release, from that
release, so that it is always one behind.
"""
