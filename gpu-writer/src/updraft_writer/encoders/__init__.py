# SPDX-License-Identifier: Apache-2.0
"""Encoders, which turn row groups into the bytes of a file: `encoder` has the interface, `file_factory` picks one."""
