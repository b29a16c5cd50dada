#!/bin/sh
# Sets up a Meson build and compiles it: tools/compile.sh BUILD SOURCE [options of meson setup].
# A warning is an error if tools/compilers lists the compiler; otherwise everything is compiled anew
# and the last line counts the warnings. The compiler is $CC or cc; meson and ninja are those on PATH.
set -eu
export LC_ALL=C
build=$1
source=$2
shift 2
compiler=$(printf '#ifdef __clang__\nclang __clang_major__\n#else\ngcc __GNUC__\n#endif\n' |
    ${CC:-cc} -E -P -x c - | tr -s '\n' ' ' | sed 's/^ *//; s/ *$//')
[ -n "$compiler" ] || { echo "'${CC:-cc}' does not compile C" >&2; exit 1; }
werror=false
grep -qxF "$compiler" "$(dirname "$0")/compilers" && werror=true
if [ -f "$build/build.ninja" ]; then
    meson configure "$build" -Dwerror=$werror
    [ $werror = true ] || meson compile -C "$build" --clean >/dev/null
else
    rm -rf "$build"
    meson setup "$build" "$source" -Dwerror=$werror "$@"
fi
status=0
meson compile -C "$build" >"$build/compile.log" 2>&1 || status=$?
cat "$build/compile.log"
[ $status != 0 ] || echo "$build: warnings from $compiler: $(grep -c 'warning:' "$build/compile.log")"
exit $status
