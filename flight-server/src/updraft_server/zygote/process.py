# SPDX-License-Identifier: Apache-2.0
"""Zygote process, from which workers are forked: it has loaded what they need, and uses neither threads nor gRPC.

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
    # Do this before hiding the memory, because it opens files in /proc/self.
    enter_user_namespace_to_mount()
    # Hide it from workers of an earlier zygote, which run user code at the same time. Processes forked here are hidden
    # from their first instruction.
    hide_memory()
    adopt_orphans()
    # Import this only now, because it is slow.
    from updraft_server.zygote.loading import load_and_serve

    load_and_serve(score)


if __name__ == "__main__":
    main()
