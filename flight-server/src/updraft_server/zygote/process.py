# SPDX-License-Identifier: Apache-2.0
"""The process that workers are forked from: it has loaded what they need, and runs neither threads nor gRPC.

Started by `updraft_server.supervisor.supervisor` as `python -m updraft_server.zygote.process`. It serves any number of
fronts, one after the other in practice, and ends the workers of a front that goes away. Workers of a zygote that died
are taken over and kept for the front that claims them.
"""

from updraft.service.parent import follow_parent
from updraft_server.linux.namespaces import enter_user_namespace_to_mount
from updraft_server.linux.out_of_memory import OutOfMemoryScore
from updraft_server.linux.process_control import adopt_orphans, hide_memory


def main() -> None:
    """Close this process to its neighbours, then load the image and serve."""
    follow_parent()
    score = OutOfMemoryScore()
    # Before memory is hidden: it takes files of /proc/self.
    enter_user_namespace_to_mount()
    # Workers of an earlier zygote run user code beside this one. What is forked here is hidden from its first
    # instruction.
    hide_memory()
    adopt_orphans()
    # What takes long to import comes after that.
    from updraft_server.zygote.loading import load_and_serve

    load_and_serve(score)


if __name__ == "__main__":
    main()
