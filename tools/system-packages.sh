#!/bin/sh
# Installs packages that pip cannot, only missing ones: tools/system-packages.sh demo | c | test.
# `demo` needs a C compiler and Python's venv; `c`, the C tests, also cmocka; `test` also a
# PostgreSQL server, iproute2 (for machines of network namespaces) and pkg-config. As root on a system with apt it
# prints what it will install and installs it; otherwise, and with TRIBUTARY_NO_SYSTEM=1, one message
# lists the missing packages, and the status is 1.
set -eu
command=$1
python=${PYTHON:-python3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# The argument is a C program; further ones go to the compiler. From a file: a pipe to a compiler that
# is not there is an error of printf where SIGPIPE is ignored.
compiles() {
    printf '%s\n' "$1" >"$out/program.c"
    shift
    ${CC:-cc} "$out/program.c" -o "$out/program" "$@" >/dev/null 2>&1
}

find_missing() {
    missing=""
    if ! compiles 'int x;' -c; then
        missing="$missing gcc libc6-dev"
        has_compiler=no
    elif ! compiles '#include <stdlib.h>
int main(void) { return 0; }'; then
        missing="$missing libc6-dev"
        has_compiler=no
    else
        has_compiler=yes
    fi
    # Debian's name of the Python: python3, or python3.12 of one that is not the default.
    name=$(basename "$python")
    [ "$name" != python ] || name=python3
    "$python" -c 'import venv, ensurepip' 2>/dev/null || missing="$missing $name-venv"
    if [ "$command" != demo ]; then
        has_cmocka || missing="$missing libcmocka-dev"
    fi
    if [ "$command" = test ]; then
        ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 ||
            missing="$missing postgresql"
        PATH="$PATH:/usr/sbin:/sbin" command -v ip >/dev/null 2>&1 || missing="$missing iproute2"
        command -v pkg-config >/dev/null 2>&1 || missing="$missing pkgconf"
    fi
}

has_cmocka() {
    if [ $has_compiler = no ]; then
        test -f /usr/include/cmocka.h
        return
    fi
    compiles '#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
int main(void) { return 0; }' -lcmocka
}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "'$python' is not Python 3.11 or newer: choose another with 'make PYTHON=python3.12 ...'" >&2
    exit 1
fi
find_missing
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && [ "${TRIBUTARY_NO_SYSTEM:-0}" != 1 ] && command -v apt-get >/dev/null; then
    echo "installing these system packages with apt-get (TRIBUTARY_NO_SYSTEM=1 stops this):$missing"
    apt-get update -qq >/dev/null
    # shellcheck disable=SC2086 # a list of names
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    find_missing # of a Python or a compiler from elsewhere, perhaps
    [ -n "$missing" ] || exit 0
fi
echo "please install these system packages (Debian's names):$missing" >&2
exit 1
