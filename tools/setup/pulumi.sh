# shellcheck shell=bash
# Pulumi's CLI: from PATH, from its release, or built from its module; tools/setup/get_pulumi.py decides.

announce_pulumi() {
  local what
  what=$(.venv/bin/python tools/setup/get_pulumi.py --announce)
  [[ -z $what ]] || say "$what"
}

# get_pulumi: gets what is missing. Runs aside.
get_pulumi() { .venv/bin/python tools/setup/get_pulumi.py >/dev/null; }

# Puts the CLI first on PATH; it must be there.
use_pulumi() {
  PULUMI_FOLDER=$(.venv/bin/python tools/setup/get_pulumi.py)
  export PATH="$PULUMI_FOLDER:$PATH"
}
