# SPDX-License-Identifier: Apache-2.0
"""`make audit`: third-party packages that ship with Updraft, with their licenses and known vulnerabilities."""
