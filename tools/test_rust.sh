#!/bin/sh
# Tests the crates of bindings/rust if there is a cargo of Rust 1.85 or later; see Makefile.
#
#     test_rust.sh PYTHON [asan | package]
#
# asan: the tests again, with the C library under the address and leak sanitizers, without that of
# fork(): a child of many threads may not allocate under the address sanitizer, whose locks GCC 12
# does not hold across fork(). package: a program builds in an empty folder with the crates as they
# would be published: headwater, and headwater-sys with the C sources that it brings.
set -eu
. tools/need_cargo.sh
need_cargo rust "$1" 85
rust=bindings/rust
if [ "${2:-}" = package ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    export CARGO_TARGET_DIR="$folder/target"
    if [ "$version" -lt 90 ]; then
        echo "rust: packages skipped, cargo 1.$version does not pack a crate with one that it needs"
        exit 0
    fi
    (cd $rust && cargo package --offline --locked --allow-dirty --no-verify --quiet --workspace)
    mkdir -p "$folder/program/src"
    cd "$folder/program"
    # The unpacked folders stand for the registry.
    printf '[package]\nname = "program"\nedition = "2024"\n' >Cargo.toml
    printf '[dependencies]\nheadwater = "*"\n[patch.crates-io]\n' >>Cargo.toml
    for crate in headwater-sys headwater; do
        tar -xzf "$folder"/target/package/$crate-[0-9]*.crate -C "$folder"
        printf '%s = { path = "%s" }\n' $crate "$(echo "$folder"/$crate-[0-9]*[0-9])" >>Cargo.toml
    done
    cp "$folder"/headwater-[0-9]*/examples/epoch.rs src/main.rs
    cargo build --offline --quiet
    # The program is linked, and prints what it wants.
    "$folder/target/debug/program" 2>&1 | grep -q "expected a store"
    echo "rust: a program builds with the unpacked packages of headwater and headwater-sys"
    exit 0
fi
export HEADWATER_RUST_VECTORS="$PWD/build/rust-vectors"
export XDG_CACHE_HOME="$PWD/build/rust-cache" # remembers opened stores
"$python" tools/rust_vectors.py "$HEADWATER_RUST_VECTORS"
cd $rust
if [ "${2:-}" = asan ]; then
    export CARGO_TARGET_DIR=../../build/rust-asan
    export HEADWATER_CFLAGS="-fsanitize=address -fno-omit-frame-pointer"
    export RUSTFLAGS="-Clink-arg=-lasan" # rustc links without the libraries of the C compiler
    host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
    library=$(${CC:-cc} -print-file-name=libasan.so)
    export "CARGO_TARGET_${host}_RUNNER=env ASAN_OPTIONS=quarantine_size_mb=1 LD_PRELOAD=$library"
    exec cargo test --offline --locked --quiet -p headwater --tests -- --skip forked
fi
export CARGO_TARGET_DIR=../../build/rust
"$python" ../../tools/rust_bindings.py ../../headwater/include/headwater.h \
    --check headwater-sys/src/bindings.rs
"$python" ../../tools/rust_options.py --check headwater/src/option_table.rs
"$python" ../../tools/rust_fields.py --check headwater/src/field_table.rs
if cargo fmt --version >/dev/null 2>&1; then
    cargo fmt --check
fi
if cargo clippy --version >/dev/null 2>&1; then
    cargo clippy --offline --locked --quiet --all-targets -- -D warnings
fi
cargo test --offline --locked --quiet
"$python" ../../tools/rust_vectors.py "$HEADWATER_RUST_VECTORS" --resume
CARGO_TARGET_DIR=$(cd "$CARGO_TARGET_DIR" && pwd) # as seen from any folder
exec "$python" ../../tools/rust_docs.py ../../build/rust-docs "$HEADWATER_RUST_VECTORS/shop.store"
