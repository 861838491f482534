# SPDX-License-Identifier: Apache-2.0
"""What session functions need beside their pickle: broadcast variables and the files of a session, by digest.

`needs` reads and checks what a command lists; `store` keeps artifacts on disk, per owner and within its limit; `stored`
is what it knows of one; `arrival` is one on its way in; `originals` notices that one was changed; `file_sets` shows
files under the names that a session gives them; `dialogue` asks a client and reads its answers; `collector` decides
what to ask for. All of it runs in the front, which opens none of it; workers read the
files where they lie.
"""
