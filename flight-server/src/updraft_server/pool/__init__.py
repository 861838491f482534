# SPDX-License-Identifier: Apache-2.0
"""Workers as the front sees them: leased to one exchange each, watched, and replaced by the zygote."""
