# SPDX-License-Identifier: Apache-2.0
"""Messages of the last release, and how this one handles them.

`0.1.jsonl` (a pool's) and `0.1-writer.jsonl` were recorded by `make record-wire` before the first release. They are
recorded again at each release, from that release, so that they are always one behind.
"""
