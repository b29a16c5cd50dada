#!/bin/sh
# tools/test_bare.sh part|full SUITE...: runs tools/bare_part.sh on a bare machine of each suite, one
# after the other, and prints a table of what they have and how the tests ended. A suite is skipped
# only if no such machine can be made here (tools/bare_machine.sh); the status counts failures.
set -u
cd "$(dirname "$0")/.."
size=$1
shift
mkdir -p build/machines
passed=0 failed=0 skipped=0
rows=""
for suite in "$@"; do
    log=build/machines/$suite.log
    echo "test-bare: $suite (log: $log)"
    sh tools/bare_machine.sh "$suite" sh tools/bare_part.sh "$size" >"$log" 2>&1 &
    child=$!
    trap 'kill $child; wait $child; exit 143' INT TERM HUP
    tail -n +1 -F --pid=$child "$log" 2>/dev/null | grep --line-buffered '^FAILED ' & # as they fail
    wait $child
    status=$?
    wait
    case $status in
    0) passed=$((passed + 1)) ;;
    77)
        skipped=$((skipped + 1))
        echo "test-bare: $suite skipped: $(grep '^no bare machine' "$log")"
        ;;
    *)
        failed=$((failed + 1))
        tail -n 100 "$log"
        echo "test-bare: $suite failed"
        ;;
    esac
    rows="$rows$(tail -n 1 "$log" | grep '^|')
"
done
echo "| Debian | Python | JAX | NumPy | compiler | cmocka | passed | failed | skipped | warnings | minutes |"
echo "|---|---|---|---|---|---|---|---|---|---|---|"
printf '%s' "$rows" | grep '^|'
echo "test-bare: $passed passed, $failed failed, $skipped skipped"
exit "$failed"
