#!/bin/sh
# Closes handles while other threads are in C, a thousand times each, under the address sanitizer:
# tests/sanitized.sh BUILD, where BUILD is one of headwater with tests and -Db_sanitize=address. The
# installed package is copied, with the library of that build in it. Leaks are Python's own.
set -eu
build=$1
root=$(cd "$(dirname "$0")/.." && pwd)
installed=$(python -c 'import headwater; print(headwater.__path__[0])')
rm -rf "$build/python"
mkdir -p "$build/python"
cp -r "$installed" "$build/python/headwater"
cp "$build/tests/c/libheadwater_exports.so" "$build/python/headwater/binding/_headwater.so"
# The sanitizer looks for what throws in C++ as it starts; DuckDB, which builds the tests' store, would
# bring it later.
runtime="$(${CC:-cc} -print-file-name=libasan.so) $(${CC:-cc} -print-file-name=libstdc++.so.6)"
LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=$(cd "$build/python" && pwd) \
    python -m pytest -q -s -p no:cacheprovider "$root/tests/python/binding/test_binding_threads.py"
