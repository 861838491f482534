# SPDX-License-Identifier: Apache-2.0
"""What the last release said on the wire, and what this one makes of it.

`0.1.jsonl` (a pool's) and `0.1-writer.jsonl` were recorded by `make record-wire` before the first release. They are
recorded again at each release, from that release, so that they are always one behind.
"""
