# SPDX-License-Identifier: Apache-2.0
"""Artifacts of session functions: broadcast variables and the files of a session, identified by their digests.

`needs` reads and checks the artifacts that a command lists. `store` keeps artifacts on disk, per owner and within its
limit, and `stored` defines its records. `arrival` receives one artifact, and `originals` detects changes of stored
artifacts. `collector` decides which artifacts to request from a client, and lays out files under the names that a
session gives them; `dialogue` sends the requests and reads the answers. All of this runs in the front, which never
interprets the contents of an artifact. Workers read the files directly from the store.
"""
