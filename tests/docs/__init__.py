# SPDX-License-Identifier: Apache-2.0
"""The documentation is correct: links, anchors, images, names, tests of guarantees, make targets."""
