# SPDX-License-Identifier: Apache-2.0
"""What the documents say about the repository is so: links, anchors, images, tests behind guarantees, make targets."""
