#!/usr/bin/env bash
# The checks that a change of a fleet's policies must pass before it is merged.
# Any CI can call this script in a checkout that has the commit to compare with:
#
#   pull-request.sh FOLDER [BASE]
#
# FOLDER has the objects, policies and clusters, and optionally tests of policies.
# BASE is the commit that the change is compared with (origin/main). The script
# writes two files: refract.sarif, the findings for the code viewer, and refract.md,
# the effect of the change on the fleet, as a comment for the pull request.
#
# Exit codes: 0 the change may be merged; 1 errors or failed tests; 2
# the checks could not be run.
set -euo pipefail

folder=${1:?usage: pull-request.sh FOLDER [BASE]}
base=${2:-origin/main}

# check runs a command whose exit code 1 means that it has findings.
found=0
check() {
  local code=0
  "$@" || code=$?
  if [ "$code" -gt 1 ]; then exit 2; fi
  if [ "$code" -eq 1 ]; then found=1; fi
}

echo "== lint"
check refract lint -f "$folder" --fail-on error
refract lint -f "$folder" --fail-on error -o sarif >refract.sarif || [ $? -eq 1 ]

if grep -rqs 'kind: PolicyTest' "$folder"; then
  echo "== test"
  check refract test "$folder"
fi

echo "== diff"
old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
if ! git archive "$base" -- "$folder" | tar -x -C "$old"; then
  echo "error: there is no $folder in $base" >&2
  exit 2
fi
# differs prints the differences in one of the formats.
differs() { refract diff --from "$old/$folder" --to "$folder" -o "$1"; }
code=0
differs markdown >refract.md || code=$?
if [ "$code" -le 1 ]; then
  differs text || [ $? -eq 1 ]
elif refract lint -f "$old/$folder" --fail-on error >/dev/null; then
  exit 2
else # The change may be the repair.
  echo "The fleet has errors as it is in $base, so what changes cannot be said." | tee refract.md
fi

exit "$found"
