#!/usr/bin/env bash
# What a change of a fleet's policies must pass before it is merged. Any CI can
# call it, in a checkout that has the commit to compare with:
#
#   pull-request.sh FOLDER [BASE]
#
# FOLDER holds the objects, policies and clusters, and perhaps tests of policies;
# BASE is the commit that the change is compared with (origin/main). Two files are
# written: refract.sarif, the findings for the code viewer, and refract.md, what
# the change does to the fleet, as a comment for the pull request.
#
# Exit codes: 0 it may be merged; 1 there are errors, or tests that fail; 2 it could
# not be looked at.
set -euo pipefail

folder=${1:?usage: pull-request.sh FOLDER [BASE]}
base=${2:-origin/main}

# check runs a command whose exit code 1 means that it has found something.
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
# differs prints what changes, in one of the forms.
differs() { refract diff --from "$old/$folder" --to "$folder" -o "$1"; }
code=0
differs markdown >refract.md || code=$?
if [ "$code" -le 1 ]; then
  differs text || [ $? -eq 1 ]
elif refract lint -f "$old/$folder" --fail-on error >/dev/null; then
  exit 2
else # The change may well be the repair.
  echo "The fleet has errors as it is in $base, so what changes cannot be said." | tee refract.md
fi

exit "$found"
