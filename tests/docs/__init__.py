# SPDX-License-Identifier: Apache-2.0
"""What the documentation says is true: links, anchors, images, names, tests of guarantees, make targets."""
