# shellcheck shell=bash
# The Python side: a pinned uv, and the locked environment in .venv.

CACHE=${KIMI_INFRA_CACHE:-$HOME/.cache/kimi-infra}
UV_VERSION=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' tools/setup/uv.txt)
UV_OWN=$CACHE/uv-$UV_VERSION

# Sets UV to the machine's own uv where that is recent enough, else to the one of set-up.
choose_uv() {
  local found
  UV=$UV_OWN/bin/uv
  found=$(uv --version 2>/dev/null | cut -d' ' -f2) || return 0
  [[ -z $found ]] || [[ $(printf '%s\n' "$UV_VERSION" "$found" | sort -V | head -n 1) != "$UV_VERSION" ]] || UV=$(type -P uv)
}

announce_python() {
  [[ -x $UV ]] || say "No uv $UV_VERSION or later on PATH: it is installed into $UV_OWN."
  [[ -x .venv/bin/python ]] || say "The locked Python packages are installed into .venv."
}

install_uv() {
  local new=$UV_OWN.new.$$
  mkdir -p "$CACHE"
  python3 -m venv "$new"
  "$new/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/setup/uv.txt
  mv -T "$new" "$UV_OWN" # whole or not at all; uv is a plain binary and may be moved
}

# The index that pip is told to use, which uv does not read. Empty: the public one.
configured_index() {
  printf '%s' "${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-${PIP_INDEX_URL:-$(python3 -m pip config get global.index-url 2>/dev/null || true)}}}"
}

# sync_python: makes .venv what uv.lock says. Runs aside.
sync_python() {
  local index
  [[ -x $UV ]] || install_uv
  export UV_PROJECT_ENVIRONMENT=.venv
  # Once here, or at the start of each command where the environment forbids Python to keep it.
  export UV_COMPILE_BYTECODE=1
  unset VIRTUAL_ENV
  "$UV" python find --quiet --no-python-downloads --no-project '>=3.11,<3.13' >/dev/null ||
    say "No Python 3.11 or 3.12 on this machine: uv downloads one, about 30 MB, from its publisher."
  index=$(configured_index)
  if [[ -z $index ]]; then
    "$UV" sync --frozen --quiet
  else
    # The lock's addresses are the public index's. The same files, by their hashes, come from the one set here.
    [[ -x .venv/bin/python ]] || "$UV" venv --quiet --no-project --python '>=3.11,<3.13' .venv
    "$UV" export --frozen --quiet --no-emit-project --output-file "$SCRATCH/requirements.txt"
    UV_DEFAULT_INDEX=$index "$UV" pip sync --quiet --python .venv/bin/python --require-hashes "$SCRATCH/requirements.txt"
    UV_DEFAULT_INDEX=$index "$UV" pip install --quiet --python .venv/bin/python --no-deps --editable .
  fi
  .venv/bin/python -m compileall -q kimi_infra
}
