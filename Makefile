# Thin on purpose: all the logic is in tools/course.py, which also runs without make.
# The Python is that of .venv, else the first of these that the course supports; PYTHON=... names another.
CANDIDATES := $(if $(CONDA_PREFIX)$(VIRTUAL_ENV),python) .venv/bin/python python3.13 python3.12 python3.11 python3 python
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

ifdef PYTHON
export COURSE_PYTHON_NAMED := 1
else
PYTHON := $(shell for p in $(CANDIDATES); do "$$p" -c '$(SUPPORTED)' 2>/dev/null && echo "$$p" && exit; done; \
	command -v python3 || command -v python)
endif

export DEVICE CHAPTER TORCH LOCK

.DEFAULT_GOAL := help
VERBS := setup lab test reset refresh lint bench help
STRAY := $(filter-out $(VERBS),$(MAKECMDGOALS))
.PHONY: $(VERBS) $(STRAY)
# One word that is no verb: only the sentence about it, and no other verb is run.
$(if $(STRAY),$(STRAY),$(VERBS)):
ifeq ($(strip $(PYTHON)),)
	@echo "The course needs Python 3.11, 3.12 or 3.13, and there is none on PATH: install one of them." >&2; exit 1
else
	@"$(PYTHON)" -c '' >/dev/null 2>&1 || { echo "PYTHON=$(PYTHON) does not run: name a Python 3.11, 3.12 or 3.13, or leave it out." >&2; exit 1; }
	@"$(PYTHON)" tools/course.py $@ $(if $(STRAY),,$(ARGS))
endif
ifneq ($(STRAY),)
$(filter $(VERBS),$(MAKECMDGOALS)): | $(STRAY)
endif
