# shellcheck shell=bash
# Debian packages: what is missing, why it is needed, and its installation.

# Services that Debian starts as soon as their package is there. The lab starts its own, so these stay off.
UNWANTED_SERVICES=(apt-cacher-ng docker-registry)
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK="Laid by kimi-infra's set-up, which removes it when it ends."

# Each missing_for_NEED prints lines of package, spaces, reason: what the need lacks on this machine.

# Comes before all else: the lab's list is read by python3, and a uv of our own is put in by pip.
missing_for_start() {
  [[ -n $(type -P python3) ]] || say "python3  reads the lab's list of packages"
  [[ -x $UV ]] || python3 -c 'import ensurepip' 2>/dev/null || say "python3-venv  makes the environment of a pinned uv"
  [[ -e /etc/ssl/certs/ca-certificates.crt ]] || say "ca-certificates  proves the package index"
}

missing_for_lint() {
  [[ -n $(type -P git) ]] || say "git  lists the project's files for the linters"
  [[ -n $(type -P shellcheck) ]] || say "shellcheck  checks the shell scripts"
}

missing_for_lab() { python3 kimi_infra/lab/requirements.py --missing --reasons; }

# announce_packages LINES: says what is missing and what happens next; ends the run where that is the operator's to do.
announce_packages() {
  local package reason names=()
  say "Missing Debian packages:"
  while read -r package reason; do
    printf '  %-24s %s\n' "$package" "$reason"
    names+=("$package")
  done <<<"$1"
  if [[ -z $(type -P apt-get) ]]; then
    fail "This machine has no apt-get: set-up knows Debian and Ubuntu only. Install the like of the above and run again."
  elif ((EUID != 0)); then
    fail "Not root, so nothing was installed. Run this, then try again:
  sudo apt-get install --no-install-recommends ${names[*]}"
  fi
  say "They are installed now by apt-get; services among them are neither started nor enabled."
}

# install_packages: installs what PACKAGES names. Runs aside; the exit trap is that subshell's own.
install_packages() {
  exec 8>/run/lock/kimi-infra-packages # two checkouts may be set up at once
  flock 8
  trap allow_services EXIT
  trap 'exit 143' TERM # without it the exit trap is passed over
  keep_services_off
  export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1
  apt-get -q -o DPkg::Lock::Timeout=300 update
  apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "${PACKAGES[@]}"
  disable_services
}

# A policy of the machine's own stays as it is; what it lets start is stopped by disable_services.
keep_services_off() {
  local pattern
  [[ ! -e $POLICY ]] || return 0
  pattern=$(printf '|*%s*' "${UNWANTED_SERVICES[@]}")
  (
    set -o noclobber
    printf '#!/bin/sh\n# %s\ncase "$*" in\n  %s) exit 101 ;;\nesac\nexit 0\n' "$POLICY_MARK" "${pattern:1}" >"$POLICY"
  )
  chmod 0755 "$POLICY"
}

# Also clears away what a killed run left behind: the mark says whose it is.
allow_services() {
  ! grep -qsF "$POLICY_MARK" "$POLICY" || rm -f "$POLICY"
}

# Only services that came with this installation: one that the operator had before is the operator's.
disable_services() {
  local service
  [[ -n $(type -P systemctl) ]] || return 0
  for service in "${UNWANTED_SERVICES[@]}"; do
    [[ " ${PACKAGES[*]} " == *" $service "* ]] || continue
    systemctl disable "$service.service"
    [[ ! -d /run/systemd/system ]] || systemctl stop "$service.service"
  done
}
