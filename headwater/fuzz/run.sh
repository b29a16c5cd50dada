#!/bin/sh
# Runs a fuzz target under libFuzzer, ASan and UBSan: fuzz/run.sh fuzz_sample [libFuzzer arguments],
# e.g. -max_total_time=600. Needs clang. Stores and corpus lie under build/fuzz and $TMPDIR.
set -eu
target=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
out=${FUZZ_OUT:-$root/../build/fuzz}
mkdir -p "$out/corpus-$target" "$out/stores"
clang -std=c17 -g -O1 -pthread -ffp-contract=off \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
    -I"$root/include" -I"$root/src" -I"$root/tests/c" \
    "$root"/fuzz/"$target".c "$root"/tests/c/support/fixtures.c "$root"/tests/c/support/damage.c \
    "$root"/tests/c/support/harbours.c "$root"/tests/c/support/league.c "$root"/tests/c/support/survey.c "$root"/src/*/*.c -lm \
    -o "$out/$target"
TMPDIR=$out/stores exec "$out/$target" -max_len=100 -artifact_prefix="$out/" "$@" \
    "$out/corpus-$target"
