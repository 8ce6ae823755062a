# shellcheck shell=bash
# Everything that is checked without running the code.

check_style() { .venv/bin/ruff check; }
check_format() { .venv/bin/ruff format --check --diff; }
check_types() { .venv/bin/mypy; }
check_layers() { .venv/bin/lint-imports --no-logo; }
check_plays() { .venv/bin/ansible-lint --offline; }
check_shell() { tools/setup/shell_scripts | xargs shellcheck --external-sources; }

lint() {
  say "== Lint"
  together "ruff check" check_style "ruff format" check_format "mypy --strict" check_types \
    "import-linter" check_layers "ansible-lint" check_plays "shellcheck" check_shell
}
