#!/bin/sh
# Tests bindings/rust/burn-collective if there is a cargo of Rust 1.92 or later, and crates can be
# fetched; see Makefile.
#
#     test_burn_collective.sh PYTHON
#
# Otherwise it is skipped, which is an error if REQUIRE_BURN=1. The crates stay compiled in the
# user's cache, for other clones too. They are not optimised: that takes longer than it saves.
set -eu
python=$1
skip() {
    echo "burn-collective: skipped, $1"
    if [ "${REQUIRE_BURN:-0}" = 1 ]; then
        exit 1
    fi
    exit 0
}
least=92
version=$(cargo --version 2>/dev/null | sed 's/^cargo 1\.\([0-9]*\).*/\1/')
if [ -z "$version" ] || [ "$version" -lt $least ]; then
    skip "no cargo of Rust 1.$least or later here (${version:+1.}${version:-none})"
fi
cd bindings/rust/burn-collective
host=$(rustc -vV | sed -n 's/^host: //p')
timeout 300 cargo fetch --quiet --target "$host" || skip "crates cannot be fetched here"
cd ../../..
export HEADWATER_RUST_VECTORS="$PWD/build/rust-vectors"
"$python" tools/rust_vectors.py "$HEADWATER_RUST_VECTORS"
cd bindings/rust/burn-collective
export CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/headwater-burn-collective"
if cargo fmt --version >/dev/null 2>&1; then
    cargo fmt --check
fi
cargo test --offline --quiet --tests --no-run
timeout 600 cargo test --offline --quiet --tests -- --show-output # ranks may wait for each other
