# SPDX-License-Identifier: Apache-2.0
"""Property tests run on shared machines: how long an example takes proves nothing."""

import importlib.util

# The environment of `make test-gpu` has no property tests.
if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    settings.register_profile("without-deadline", deadline=None)
    settings.load_profile("without-deadline")
