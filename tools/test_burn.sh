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
python=$(command -v "$1")
case $python in /*) ;; *) python=$PWD/$python ;; esac
name=burn least=95
if [ "${2:-}" = collective ]; then
    name=burn-collective least=92
fi
version=$(cargo --version 2>/dev/null | sed 's/^cargo 1\.\([0-9]*\).*/\1/')
if [ -z "$version" ] || [ "$version" -lt $least ]; then
    echo "$name: skipped, no cargo of Rust 1.$least or later here (${version:+1.}${version:-none})"
    exit 0
fi
crate=$PWD/bindings/rust/$name
host=$(rustc -vV | sed -n 's/^host: //p')
if ! (cd "$crate" && timeout 300 cargo fetch --quiet --target "$host"); then
    empty=$(mktemp -d) # a cache would answer for the registry
    trap 'rm -rf "$empty"' EXIT
    cp "${CARGO_HOME:-$HOME/.cargo}"/config* "$empty" 2>/dev/null || true
    if CARGO_HOME="$empty" timeout 60 cargo info --quiet bytes >/dev/null 2>&1; then
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
shop=$PWD/build/shop/store
if [ "${2:-}" = release ] && [ ! -d "$shop" ]; then
    mkdir -p build/shop
    "$python" -m headwater.shop build/shop/shop.sqlite
    "$python" -m headwater build sqlite:///build/shop/shop.sqlite "$shop" \
        --metadata examples/shop/shop.json
fi
cd "$crate"
if [ $name = burn-collective ]; then
    cargo fmt --check
    cargo test --offline --quiet --tests --no-run
    # Ranks might wait for each other.
    exec timeout 600 cargo test --offline --quiet --tests -- --show-output
fi
if [ "${2:-}" != release ]; then
    exec cargo test --offline --quiet
fi
cargo fmt --check
cargo clippy --offline --quiet --all-targets -- -D warnings
HEADWATER_BURN_RUNS=50 cargo test --offline --quiet --release --test ranks
HEADWATER_SHOP_STORE="$shop" cargo test --offline --quiet --release --test shop -- --ignored --nocapture
# A training by the Learner that is killed after its first epoch ends like one that is not.
cargo build --offline --quiet --release --example learner_shop
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
learner="$CARGO_TARGET_DIR/release/examples/learner_shop"
store="$HEADWATER_RUST_VECTORS/shop.store"
"$learner" "$store" "$folder/whole" 4 >"$folder/whole.log"
"$learner" "$store" "$folder/killed" 4 >"$folder/killed.log" &
child=$!
until test -s "$folder/killed/checkpoint/scheduler-1.bpk"; do sleep 0.1; done
sleep 0.2
kill -9 $child
wait $child || echo "burn: a training by the Learner was killed"
"$learner" "$store" "$folder/killed" 4 >"$folder/resumed.log"
grep "^goes on after epoch [123]" "$folder/resumed.log"
tail -n 1 "$folder/whole.log" >"$folder/expected"
tail -n 1 "$folder/resumed.log" | diff "$folder/expected" -
