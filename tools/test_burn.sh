#!/bin/sh
# Tests headwater-burn if there is a cargo of Rust 1.95 or later, and crates can be fetched.
#
#     test_burn.sh PYTHON [release | collective]
#
# release: longer tests, optimised. collective: bindings/rust/burn-collective, for which Rust 1.92
# suffices. The script fails, and does not skip, if the registry answers but crates cannot be fetched.
# Cargo.lock is made here, because it names the registry. Build folders are in the user's cache, for
# all clones.
set -eu
. tools/need_cargo.sh
name=burn least=95
if [ "${2:-}" = collective ]; then
    name=burn-collective least=92
fi
need_cargo $name "$1" $least
crate=$PWD/bindings/rust/$name
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
host=$(rustc -vV | sed -n 's/^host: //p')
if ! (cd "$crate" && timeout 300 cargo fetch --quiet --target "$host"); then
    # With an empty home: a cache would answer for the registry.
    cp "${CARGO_HOME:-$HOME/.cargo}"/config* "$folder" 2>/dev/null || true
    if CARGO_HOME="$folder" timeout 60 cargo info --quiet bytes >/dev/null 2>&1; then
        echo "$name: the registry answers, but the crates cannot be fetched"
        exit 1
    fi
    echo "$name: skipped, crates cannot be fetched here"
    exit 0
fi
export HEADWATER_RUST_VECTORS="$PWD/build/rust-vectors"
export CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/headwater-$name"
"$python" tools/rust_vectors.py "$HEADWATER_RUST_VECTORS"
export XDG_CACHE_HOME="$PWD/build/rust-cache" # remembers opened stores
if [ "${2:-}" = release ]; then
    "$python" -m headwater.shop "$folder/shop.sqlite"
    "$python" -m headwater build "sqlite:///$folder/shop.sqlite" "$folder/shop.store" \
        --metadata examples/shop/shop.json
fi
cd "$crate"
if [ $name = burn-collective ]; then
    cargo fmt --check
    cargo test --offline --quiet --tests --no-run
    # Ranks might wait for each other.
    timeout 600 cargo test --offline --quiet --tests -- --show-output
    exit
fi
if [ "${2:-}" != release ]; then
    cargo test --offline --quiet
    exit
fi
cargo fmt --check
cargo clippy --offline --quiet --all-targets -- -D warnings
HEADWATER_BURN_RUNS=50 cargo test --offline --quiet --release --test ranks
HEADWATER_SHOP_STORE="$folder/shop.store" \
    cargo test --offline --quiet --release --test shop -- --ignored --nocapture
# A training by the Learner that is killed after its first epoch ends like one that is not.
cargo build --offline --quiet --release --example learner_shop
learner="$CARGO_TARGET_DIR/release/examples/learner_shop"
store="$HEADWATER_RUST_VECTORS/shop.store"
"$learner" "$store" "$folder/whole" 4 >"$folder/whole.log"
"$learner" "$store" "$folder/killed" 4 >"$folder/killed.log" &
child=$!
until test -s "$folder/killed/checkpoint/scheduler-1.bpk"; do
    kill -0 $child # ends this script if the training has ended
    sleep 0.1
done
sleep 0.2
kill -9 $child
wait $child || echo "burn: a training by the Learner was killed"
"$learner" "$store" "$folder/killed" 4 >"$folder/resumed.log"
grep "^goes on after epoch [123]" "$folder/resumed.log"
tail -n 1 "$folder/whole.log" >"$folder/expected"
tail -n 1 "$folder/resumed.log" | diff "$folder/expected" -
