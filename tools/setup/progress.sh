# shellcheck shell=bash
# Steps with progress: each says that it runs, that it is still at it, how long it took, and why it failed.

SCRATCH=$(mktemp -d -t kimi-infra.XXXXXX)
GROUPS_STARTED=()

say() { printf '%s\n' "$*"; }
fail() {
  say "$*" >&2
  exit 1
}

# Ends what this script started and nothing else: each job has a process group of its own.
clean_up() {
  local group
  for group in "${GROUPS_STARTED[@]}"; do kill -TERM -- "-$group" 2>/dev/null || true; done
  wait
  rm -rf "$SCRATCH"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME LOG COMMAND...: runs a command aside and reports "NAME STATUS" to descriptor 9 at its end.
# An empty LOG leaves the command's output where ours goes.
start() {
  local name=$1 log=$2
  shift 2
  set -m
  (
    set +e
    trap : TERM # stays until the command has ended: dpkg finishes what it is at
    [[ -z $log ]] || exec >"$log" 2>&1
    (
      set -e
      exec 9>&-
      "$@"
    ) </dev/null
    echo "$name $?" >&9
  ) &
  GROUPS_STARTED+=($!)
  set +m
}

# together LABEL FUNCTION [LABEL FUNCTION...]: runs functions side by side, shows the log of one that fails.
together() {
  local -A label=() began=()
  local name status patience=2 failed=0 since=$SECONDS
  open_reports
  while (($#)); do
    label[$2]=$1 began[$2]=$SECONDS
    start "$2" "$SCRATCH/$2.log" "$2"
    shift 2
  done
  while ((${#label[@]})); do
    if ! read -r -t "$patience" -u 9 name status; then
      patience=10
      say "  ... $((SECONDS - since)) s: $(join "${label[@]}")"
    elif ((status == 0)); then
      say "  done in $((SECONDS - began[$name])) s: ${label[$name]}"
      unset "label[$name]"
    else
      failed=1
      say "  FAILED after $((SECONDS - began[$name])) s: ${label[$name]}"
      sed 's/^/    | /' "$SCRATCH/$name.log"
      unset "label[$name]"
    fi
  done
  GROUPS_STARTED=()
  return $failed
}

# shown LABEL COMMAND...: runs one command with its output in sight.
shown() {
  local name status patience=2 since=$SECONDS title=$1
  shift
  open_reports
  say "== $title"
  start shown '' "$@"
  until read -r -t "$patience" -u 9 name status; do
    patience=10
    say "  ... $((SECONDS - since)) s: $title"
  done
  GROUPS_STARTED=()
  ((status == 0)) || say "  FAILED after $((SECONDS - since)) s: $title (exit status $status)"
  return "$status"
}

open_reports() {
  rm -f "$SCRATCH/reports"
  mkfifo "$SCRATCH/reports"
  exec 9<>"$SCRATCH/reports"
}

join() {
  local first=$1 rest
  shift
  rest=$(printf ', %s' "$@")
  printf '%s' "$first${*:+$rest}"
}
