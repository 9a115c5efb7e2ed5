# Two commands do everything: `make run` (the main job, on real data) and `make test`.
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed
# The first Python that Lamina runs on.
BASE = $(shell for p in python3.12 python3.13 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 12) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)

.PHONY: run test check format clean

run: $(STAMP)  ## learn scikit-learn's digits in one pass and write a report
	$(VENV)/bin/lamina run digits-online

test: $(STAMP)  ## run the tests
	$(PYTHON) -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0

check: $(STAMP)  ## lint and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

format: $(STAMP)  ## rewrite the code in the house style
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) *.egg-info build

# uv where it is installed (seconds), else venv and pip (a minute); .python-version names the Python.
$(STAMP): pyproject.toml constraints.txt
	@echo "installing Lamina and its pinned dependencies into $(VENV) …"
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing $(VENV) && \
	  uv pip install --quiet --compile-bytecode --python $(PYTHON) -c constraints.txt -e '.[dev]'; \
	elif [ -z "$(BASE)" ]; then \
	  echo "Lamina needs Python 3.12 or 3.13; none was found" >&2; exit 1; \
	else \
	  $(BASE) -m venv $(VENV) && \
	  $(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; \
	fi
	@touch $@
