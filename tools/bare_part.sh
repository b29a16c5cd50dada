#!/bin/sh
# `make test-bare` runs this on a bare machine (tools/bare_machine.sh), as root, in the project:
# tools/bare_part.sh part | full. The last line is a row of the table in CONTRIBUTING.md.
set -eu
size=$1
started=$(date +%s)

fail() {
    echo "test-bare: $*" >&2
    exit 1
}

# One message, on stderr, that lists exactly the missing packages: expects PACKAGES COMMAND...
expects() {
    packages=$1
    shift
    if message=$("$@" 2>&1 >/dev/null); then
        fail "'$*' does not stop without $packages"
    fi
    message=$(echo "$message" | grep -v '^make: \*\*\*')
    [ "$message" = "please install these system packages (Debian's names): $packages" ] ||
        fail "'$*' prints: $message"
}

# ---- before anything is installed ----------------------------------------------------------

compiler="gcc libc6-dev python3-venv"
chmod 755 /root # so that another user gets here
for as in "env TRIBUTARY_NO_SYSTEM=1" "setpriv --reuid 65534 --regid 65534 --clear-groups"; do
    # shellcheck disable=SC2086 # a command
    expects "$compiler" $as make demo
    # shellcheck disable=SC2086
    expects "$compiler libcmocka-dev postgresql iproute2 pkgconf" $as make test
done
[ ! -e .venv ] || fail "a command that stops for want of packages leaves .venv"

# What .venv brings is never the machine's.
for program in meson ninja pytest clang-format clang-tidy ruff mypy pip uv; do
    printf '#!/bin/sh\necho "taken from the machine: $0" >&2\nexit 99\n' >/usr/local/bin/$program
    chmod 755 /usr/local/bin/$program
done

# ---- the two commands ----------------------------------------------------------------------

# Runs tests and prints what they print as it comes; build/test.log has it as well.
run_tests() {
    { "$@" 2>&1 || touch build/test.failed; } | tee build/test.log
    [ ! -e build/test.failed ] || status=1
}

make demo
status=0
mkdir -p build
if [ "$size" = full ]; then
    run_tests make test
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends clang >/dev/null
    make warnings
    # An ordinary user, who installs nothing.
    useradd --create-home ordinary
    cp -r /root/tributary /home/ordinary/tributary
    (
        cd /home/ordinary/tributary
        make clean
        chown -R ordinary .
        setpriv --reuid ordinary --regid ordinary --init-groups env HOME=/home/ordinary make demo test-c
    )
    # The other way to the commands, of docs/tutorial/installation.md.
    python3 -m venv /tmp/own
    /tmp/own/bin/pip install -q ./headwater ./confluence
    /tmp/own/bin/headwater --version
    /tmp/own/bin/confluence --version
else
    sh tools/system-packages.sh test
    make test-c .venv/test-tools
    # The newest JAX, NumPy and Python may break these: the model, its training, and several ranks.
    fused=confluence/tests/model/test_fused_attention.py
    run_tests .venv/bin/python -m pytest -n 2 --dist loadfile \
        confluence/tests/model/test_attention.py confluence/tests/model/test_model.py \
        "$fused::test_every_kernel_can_be_lowered_for_a_gpu" \
        "$fused::test_a_row_that_everything_points_at_and_columns_longer_than_a_block" \
        confluence/tests/ranks/test_parallel.py confluence/tests/training/test_train.py
fi

# ---- the row -------------------------------------------------------------------------------

counted() { # of pytest's last line: counted passed
    grep -E '^=+ .* in [0-9.]+s' build/test.log | tail -n 1 | grep -oE "[0-9]+ $1" |
        grep -oE '[0-9]+' || echo 0
}
warnings=$(cat build/warnings-*/compile.log 2>/dev/null | grep -c 'warning:' || true)
[ "$size" = full ] || warnings=-
minutes=$((($(date +%s) - started + 30) / 60))
if [ "$size" = part ] && [ -d ../shared ] && [ "$(counted skipped)" != 0 ]; then
    echo "test-bare: a test is skipped" >&2
    status=1
fi
versions=$(.venv/bin/python -c '
import platform
from importlib.metadata import version
print(platform.python_version(), version("jax"), version("numpy"), sep=" | ")')
cmocka=$(dpkg-query -W -f '${Version}' libcmocka-dev)
# Of testing, the day that it is from.
debian=$(cat /etc/debian_version)
case $debian in *sid*) debian="$debian, $(date +%F)" ;; esac
echo "| $debian | $versions | gcc $(gcc -dumpfullversion) | ${cmocka%-*} |" \
    "$(counted passed) | $(counted failed) | $(counted skipped) | $warnings | $minutes |"
exit $status
