# SPDX-License-Identifier: Apache-2.0
"""A GPU and its queue: `engine` is the interface, `pylibcudf_engine` implements it, `admission` is the policy."""
