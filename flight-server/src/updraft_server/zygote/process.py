# SPDX-License-Identifier: Apache-2.0
"""Zygote process, from which workers are forked. It has loaded what workers need, and uses neither threads nor gRPC.

`updraft_server.supervisor.supervisor` starts it as `python -m updraft_server.zygote.process`. It serves any number of
fronts, in practice one after the other. When a front goes away, the zygote ends that front's workers. If an earlier
zygote has died, this zygote takes over the workers of the dead zygote, and keeps them for the front that claims them.
"""

from updraft.service.parent import follow_parent
from updraft_server.linux.namespaces import enter_user_namespace_to_mount
from updraft_server.linux.out_of_memory import OutOfMemoryScore
from updraft_server.linux.process_control import adopt_orphans, hide_memory


def main() -> None:
    """Isolate this process from its neighbours, then load the image and serve."""
    follow_parent()
    score = OutOfMemoryScore()
    # Enter the namespace before hiding the memory, because entering opens files in /proc/self.
    enter_user_namespace_to_mount()
    # Hide the memory from workers of an earlier zygote, which run user code at the same time. The memory of processes
    # that are forked later is hidden from the start.
    hide_memory()
    adopt_orphans()
    # This import is slow, so it comes last: the steps above must not wait for it.
    from updraft_server.zygote.loading import load_and_serve

    load_and_serve(score)


if __name__ == "__main__":
    main()
