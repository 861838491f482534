# SPDX-License-Identifier: Apache-2.0
# The recipe of `make check`: every stage runs, even if other stages fail, and the summary comes last.
# BUILD is the stage that builds what the stages of SECOND use. FIRST lists the stages that do not use the build, and THIRD
# the stages that check-all adds. Stages of FIRST and SECOND need the target NEEDED. Each stage is a target whose recipe begins
# with $(call BEGIN,report); report is the name of the stage's JUnit report, empty for a stage without a report.

CHECK_FOLDER := $(dir $(lastword $(MAKEFILE_LIST)))
STAGES := $(BUILD) $(FIRST) $(SECOND)
NOTES := $(REPORTS)/stages
# Remove the files of the stage's last run, because the summary must not count them.
BEGIN = mkdir -p $(NOTES) && rm -f $(NOTES)/$@.passed $(if $(1),$(REPORTS)/$(1).xml) && echo '$(1)' >$(NOTES)/$@.started
# Fall back to any Python, because the setup of .venv may have failed.
SUMMARY = $$(command -v .venv/bin/python || echo python3) $(CHECK_FOLDER)summary.py $(REPORTS) $(CONNECTOR)
STAGE_MAKE = $(MAKE) --no-print-directory --keep-going

.PHONY: run-check run-check-all print-summary
run-check:
	@rm -rf $(REPORTS) $(CONNECTOR)/*/target/*/*-reports && mkdir -p $(NOTES)
	@# Queries wait as long as they compute, and tests wait for processes that they kill, so two processors can run three stages.
	@+$(STAGE_MAKE) --jobs=3 --output-sync=target run-build-and-second $(addprefix passed-,$(FIRST)) || true
	@$(SUMMARY) $(STAGES)

# This runs beside the stages of FIRST. The stages of SECOND begin when BUILD has ended, even if BUILD has failed: they then
# build what they use.
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
