#!/bin/sh
# Tests headwater-burn if there is a cargo of Rust 1.95 or later, and crates can be fetched.
#
#     test_burn.sh PYTHON [release]
#
# release: what takes longer, optimised. A skip is an error if REQUIRE_BURN is 1. Cargo.lock is made
# here, because it names a registry. The build folder is in the user's cache, for all clones.
set -eu
python=$(command -v "$1")
case $python in /*) ;; *) python=$PWD/$python ;; esac
least=95
fetch_seconds=300

skip() {
    echo "burn: skipped, $1"
    exit $((${REQUIRE_BURN:-0}))
}

version=$(cargo --version 2>/dev/null | sed 's/^cargo 1\.\([0-9]*\).*/\1/')
if [ -z "$version" ] || [ "$version" -lt $least ]; then
    echo "burn: skipped, no cargo of Rust 1.$least or later here (${version:+1.}${version:-none})"
    exit 0
fi
crate=$PWD/bindings/rust/burn
host=$(rustc -vV | sed -n 's/^host: //p')
if ! (cd "$crate" && timeout $fetch_seconds cargo fetch --quiet --target "$host"); then
    skip "crates cannot be fetched here"
fi
export HEADWATER_RUST_VECTORS="$PWD/build/rust-vectors"
export CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/headwater-burn"
"$python" tools/rust_vectors.py "$HEADWATER_RUST_VECTORS"
export XDG_CACHE_HOME="$PWD/build/rust-cache" # remembers opened stores
cd "$crate"
if [ "${2:-}" = release ]; then
    cargo fmt --check
    cargo clippy --offline --quiet --all-targets -- -D warnings
    HEADWATER_BURN_RUNS=50 exec cargo test --offline --quiet --release --test ranks
fi
cargo test --offline --quiet
