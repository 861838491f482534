# SPDX-License-Identifier: Apache-2.0
"""Artifacts of session functions: broadcast variables and the files of a session, identified by their digests.

`needs` reads and checks the artifacts that a command lists. `store` keeps artifacts on disk, per owner and within its
limit, and `stored` has its records. `arrival` receives one artifact, `originals` detects changes on disk, and
`file_sets` lays out files under the names that a session gives them. `dialogue` asks a client and reads its answers;
`collector` decides what to ask for. All of this runs in the front, which never interprets an artifact's contents;
workers read the files in place.
"""
