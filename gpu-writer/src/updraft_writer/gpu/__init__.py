# SPDX-License-Identifier: Apache-2.0
"""A GPU and whose turn it is: `engine` is the seam, `pylibcudf_engine` alone is behind it, `admission` the policy."""
