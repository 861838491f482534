# SPDX-License-Identifier: Apache-2.0
"""Row groups become the bytes of a file: `encoder` is what all encoders have in common, `choice` picks one."""
