# SPDX-License-Identifier: Apache-2.0
"""Zygote process, from which workers are forked: it has loaded what they need, and runs neither threads nor gRPC.

`updraft_server.supervisor.supervisor` starts it as `python -m updraft_server.zygote.process`. It serves any number of
fronts, in practice one after the other, and ends the workers of a front that goes away. It takes over the workers of a
zygote that died, and keeps them for the front that claims them.
"""

from updraft.service.parent import follow_parent
from updraft_server.linux.namespaces import enter_user_namespace_to_mount
from updraft_server.linux.out_of_memory import OutOfMemoryScore
from updraft_server.linux.process_control import adopt_orphans, hide_memory


def main() -> None:
    """Isolate this process from its neighbours, then load the image and serve."""
    follow_parent()
    score = OutOfMemoryScore()
    # Done before memory is hidden, because it opens files of /proc/self.
    enter_user_namespace_to_mount()
    # Workers of an earlier zygote run user code beside this one. Processes forked here are hidden from their first
    # instruction.
    hide_memory()
    adopt_orphans()
    # Slow imports come after that.
    from updraft_server.zygote.loading import load_and_serve

    load_and_serve(score)


if __name__ == "__main__":
    main()
