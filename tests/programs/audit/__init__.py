# SPDX-License-Identifier: Apache-2.0
"""`make audit`: what is shipped with Updraft, under which licences, and what is known against it."""
