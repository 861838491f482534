# SPDX-License-Identifier: Apache-2.0
"""Unpacker: a disposable process that opens one archive of a client, with no secret, one socket and little memory.

`process` gives up the rights that an unpacker does not need; `archive` unpacks the archive within its bounds. This
package is never imported: `updraft_server.front.artifacts.unpackers` starts it as a program, without site-packages.
"""
