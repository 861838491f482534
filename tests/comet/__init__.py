# SPDX-License-Identifier: Apache-2.0
"""DataFusion Comet beside Updraft, in one session: `make test-comet`."""
