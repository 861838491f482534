# SPDX-License-Identifier: Apache-2.0
# The recipe of `make check`: every stage runs, whatever became of the others, and the summary comes last.
# BUILD is the stage that builds what those of SECOND use; FIRST lists the stages that do without, and THIRD those that
# check-all adds. NEEDED is a target that stages of both lists need. Each stage is a target whose recipe begins with
# $(call BEGIN,report): the name of the JUnit report that it leaves, if it leaves one.

CHECK_FOLDER := $(dir $(lastword $(MAKEFILE_LIST)))
STAGES := $(BUILD) $(FIRST) $(SECOND)
NOTES := $(REPORTS)/stages
# A stage that runs again starts afresh: the summary must not count what its last run left.
BEGIN = mkdir -p $(NOTES) && rm -f $(NOTES)/$@.passed $(if $(1),$(REPORTS)/$(1).xml) && echo '$(1)' >$(NOTES)/$@.started
# Any Python will do: what failed may be the setup of ours.
SUMMARY = $$(command -v .venv/bin/python || echo python3) $(CHECK_FOLDER)summary.py $(REPORTS) $(CONNECTOR)
STAGE_MAKE = $(MAKE) --no-print-directory --keep-going

.PHONY: run-check run-check-all print-summary
run-check:
	@rm -rf $(REPORTS) $(CONNECTOR)/*/target/*/*-reports && mkdir -p $(NOTES)
	@# A query waits as much as it works, and what is killed has to be waited for: three stages keep two processors busy.
	@+$(STAGE_MAKE) --jobs=3 --output-sync=target run-build-and-second $(addprefix passed-,$(FIRST)) || true
	@$(SUMMARY) $(STAGES)

# Beside the stages of FIRST. Those of SECOND begin when BUILD has ended, even if it has failed: they build what they use.
.PHONY: run-build-and-second
run-build-and-second: | $(NEEDED)
	@+$(STAGE_MAKE) passed-$(BUILD) || true
	@+$(STAGE_MAKE) --output-sync=none $(addprefix passed-,$(SECOND)) || true

run-check-all:
	@+$(MAKE) --no-print-directory run-check || true
	@+$(STAGE_MAKE) --jobs=2 $(addprefix passed-,$(THIRD)) || true
	@$(SUMMARY) $(STAGES) $(THIRD)

print-summary:
	@$(SUMMARY) $(STAGES)

# Make reaches this recipe only when the stage has passed.
$(addprefix passed-,$(STAGES) $(THIRD)): passed-%: %
	@touch $(NOTES)/$*.passed
