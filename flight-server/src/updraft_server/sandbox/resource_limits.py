# SPDX-License-Identifier: Apache-2.0
"""Limits that the kernel holds for a worker and all that it starts, and that none of them can raise again."""

import resource


def limit_resources(*, file_bytes: int, descriptors: int) -> None:
    """Hold the limits in this process for good; what is tighter already stays.

    Raising a hard limit takes CAP_SYS_RESOURCE, which a worker gives up.
    """
    for which, limit in ((resource.RLIMIT_FSIZE, file_bytes), (resource.RLIMIT_NOFILE, descriptors)):
        soft, hard = resource.getrlimit(which)
        resource.setrlimit(which, (_smaller(soft, limit), _smaller(hard, limit)))


def _smaller(inherited: int, limit: int) -> int:
    return limit if inherited == resource.RLIM_INFINITY else min(inherited, limit)
