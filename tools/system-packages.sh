#!/bin/sh
# Installs what pip cannot: a C compiler, Python's headers, cmocka (for the C tests), and for tests
# that are skipped without them a PostgreSQL server and iproute2, which makes machines of network
# namespaces. Does nothing where they are there; otherwise uses apt-get as root, or says what to
# install.
set -eu
missing=""
command -v cc >/dev/null 2>&1 || missing="$missing gcc libc6-dev"
printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' |
    cc -E -x c - >/dev/null 2>&1 || missing="$missing libcmocka-dev"
"${PYTHON:-python3}" -c 'import os, sysconfig
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' 2>/dev/null ||
    missing="$missing python3-dev"
"${PYTHON:-python3}" -c 'import venv, ensurepip' 2>/dev/null || missing="$missing python3-venv"
optional=""
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 ||
    optional=" postgresql"
command -v ip >/dev/null 2>&1 || optional="$optional iproute2"
[ -z "$missing$optional" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    missing="$missing$optional"
    echo "installing:$missing"
    apt-get update -qq >/dev/null
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
elif [ -z "$missing" ]; then
    echo "some tests will be skipped without these system packages (Debian's names):$optional" >&2
else
    echo "please install these system packages (Debian's names):$missing" >&2
    exit 1
fi
