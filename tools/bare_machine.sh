#!/bin/sh
# Runs a command on a bare machine: tools/bare_machine.sh SUITE COMMAND [ARGUMENT...], for example
# `tools/bare_machine.sh trixie make demo`. SUITE is a release of Debian (bookworm, trixie, testing).
#
#   debootstrap ──► build/machines/SUITE.base ──copy──► build/machines/SUITE ──chroot──► COMMAND
#                   (kept and reused)                   (made anew for each command, kept after it)
#
# The machine is a minimal system with `make` and `python3`, a home folder of its own, the files of
# HEAD in /root/tributary, and ../shared (if there is one) at /root/shared, read-only. It gets the
# caller's package settings: mirror, Acquire options and credentials of apt, settings of pip and uv,
# proxies, certificates. debootstrap and the command run in namespaces of their own, which end with
# this script, however it ends: no mount and no process is left.
#
# The status is the command's (1 if that is 77). It is 77 if such a machine cannot be made here,
# with the reason on stderr: no root, no apt, mount or chroot refused, or no mirror that answers
# within 30 s.
set -eu
cannot() {
    echo "no bare machine: $*" >&2
    exit 77
}

[ $# -ge 2 ] || { echo "usage: tools/bare_machine.sh SUITE COMMAND [ARGUMENT...]" >&2; exit 2; }
suite=$1
shift
case $suite in
*[!a-z]* | '') echo "'$suite' is not the name of a release of Debian" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
project=$(pwd -P)
machines=$project/build/machines
base=$machines/$suite.base
machine=$machines/$suite
mkdir -p "$machines"

[ "$(id -u)" = 0 ] || cannot "it needs root"
command -v apt-get >/dev/null || cannot "this system has no apt"
refusal=$(unshare --mount --pid --fork sh -eu -c '
    mount -t tmpfs tmpfs "$0"
    mkdir "$0/proc"
    mount -t proc proc "$0/proc"
    exec chroot / true' "$machines" 2>&1) || cannot "mount or chroot is refused: $refusal"
exec 9>"$machines/$suite.lock"
flock -n 9 || { echo "waiting for another command on '$suite'" >&2; flock 9; }

# Runs a command with this script's input, in namespaces that die with this process.
exec 3<&0
contained() {
    setpriv --pdeathsig KILL unshare --mount --propagation private --pid --fork --kill-child \
        "$@" <&3 3<&- &
    child=$!
    trap 'kill -KILL $child 2>/dev/null; wait $child || true; exit 143' INT TERM HUP
    wait $child
}

# ---- the system, once ----------------------------------------------------------------------

# Sets `mirror` to the first of these sites that has the suite, and `is_answered` if any answers.
mirror="" is_answered=no
eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
if [ -n "${http_proxy:-}" ]; then export http_proxy; fi
if [ -n "${https_proxy:-}" ]; then export https_proxy; fi
find_mirror() {
    for site in "$@"; do
        status=0
        timeout 30 python3 -c 'import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=30).read(1)
except urllib.error.HTTPError:
    sys.exit(8)' "$site/dists/$suite/InRelease" 2>/dev/null || status=$?
        case $status in
        0) mirror=$site is_answered=yes && return ;;
        8) is_answered=yes ;;
        esac
    done
}

if [ "$suite" = testing ] && [ -n "$(find "$base.log" -mtime +0 2>/dev/null)" ]; then
    rm -rf --one-file-system "$base" # it has changed since
fi
if [ -d "$base" ]; then
    sites=$(sed -n 's/^deb \(\S*\) .*/\1/p' "$base/etc/apt/sources.list")
else
    sites=$(apt-get update --print-uris | sed -n "s#^'\(.*\)/dists/.*#\1#p" | sort -u)
fi
# shellcheck disable=SC2086 # addresses
find_mirror $sites
[ $is_answered = yes ] || cannot "no mirror answers within 30 s"
if [ ! -d "$base" ]; then
    if ! command -v debootstrap >/dev/null; then
        if [ "${TRIBUTARY_NO_SYSTEM:-0}" = 1 ]; then
            echo "please install debootstrap" >&2
            exit 1
        fi
        echo "installing debootstrap with apt-get (TRIBUTARY_NO_SYSTEM=1 stops this)" >&2
        apt-get update -qq >/dev/null || true # the next line fails if it has to
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            debootstrap >/dev/null
    fi
    if [ -z "$mirror" ]; then # the caller's system is not Debian
        # shellcheck disable=SC2046 # one address, or none
        find_mirror $(sed -n 's/^ *default_mirror //p' "/usr/share/debootstrap/scripts/$suite" \
            2>/dev/null)
    fi
    [ -n "$mirror" ] || { echo "no mirror has a Debian '$suite'" >&2; exit 1; }
    rm -rf --one-file-system "$base.part"
    contained --mount-proc debootstrap --variant=minbase --include=make,python3 "$suite" \
        "$base.part" "$mirror" >"$base.log" 2>&1 || { tail -n 5 "$base.log" >&2; exit 1; }
    find "$base.part/dev" -mindepth 1 -delete # devices are mounted
    mv "$base.part" "$base"
fi

# ---- the machine of this command -----------------------------------------------------------

rm -rf --one-file-system "$machine"
cp -a "$base" "$machine"
mkdir -p "$machine/root/tributary"
git -C "$project" archive HEAD | tar -x -C "$machine/root/tributary"
if [ -d "$project/../shared" ]; then
    mkdir "$machine/root/shared"
fi

# Copies a file or folder of the caller to the same path, or to the second argument's.
carry() {
    if [ -e "$1" ]; then
        mkdir -p "$machine$(dirname "${2:-$1}")"
        cp -rL "$1" "$machine${2:-$1}"
    fi
}
carry /etc/resolv.conf
carry /etc/hosts
carry /etc/apt/auth.conf
for file in /etc/apt/auth.conf.d/*; do
    carry "$file"
done
apt-config dump --format '%F "%v";%n' Acquire >"$machine/etc/apt/apt.conf.d/99caller"
carry /etc/ssl/certs/ca-certificates.crt
carry /etc/pip.conf
carry /etc/uv
for settings in .config/pip .pip .config/uv .netrc; do
    carry "${HOME:-/root}/$settings" "/root/$settings"
done
variables=$(env | grep -iE '^(pip|uv)_[a-z_]*=|^(http|https|no)_proxy=|^(CI|TERM)=' || true)
for path in "${PIP_CONFIG_FILE:-}" "${UV_CONFIG_FILE:-}" ${PIP_FIND_LINKS:-} ${UV_FIND_LINKS:-}; do
    case $path in /*) carry "$path" ;; esac
done
# Certificates that the caller names: not by their path, which packages may write to.
carry /usr/local/share/ca-certificates
certificates=${SSL_CERT_FILE:-${PIP_CERT:-${REQUESTS_CA_BUNDLE:-${CURL_CA_BUNDLE:-}}}}
if [ -n "$certificates" ]; then
    carry "$certificates" /etc/ssl/caller.crt
    for name in SSL_CERT_FILE PIP_CERT REQUESTS_CA_BUNDLE CURL_CA_BUNDLE; do
        variables="$variables
$name=/etc/ssl/caller.crt"
    done
fi
IFS='
'
set -f
# shellcheck disable=SC2086 # a variable to a line
set -- $variables "$@"
set +f
unset IFS

# The first process waits for the command and reaps what it leaves; a command in the background of a
# shell is born with SIGINT and SIGQUIT ignored, so they get their defaults back.
export machine shared="$project/../shared"
status=0
contained sh -eu -c '
    mount --bind "$machine" "$machine" # for / to be a mount point, as on any machine
    mount -t proc proc "$machine/proc"
    mount -t tmpfs -o mode=755 tmpfs "$machine/dev"
    for device in null zero full random urandom tty; do
        : >"$machine/dev/$device"
        mount --bind "/dev/$device" "$machine/dev/$device"
    done
    mkdir "$machine/dev/pts" "$machine/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$machine/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$machine/dev/shm"
    ln -s pts/ptmx "$machine/dev/ptmx"
    ln -s /proc/self/fd "$machine/dev/fd"
    for stream in 0:stdin 1:stdout 2:stderr; do
        ln -s "/proc/self/fd/${stream%:*}" "$machine/dev/${stream#*:}"
    done
    if [ -d "$machine/root/shared" ]; then
        mount --bind "$shared" "$machine/root/shared"
        mount -o remount,bind,ro "$machine/root/shared"
    fi
    exec chroot "$machine" /usr/bin/env -i HOME=/root LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        sh -c '\''cd /root/tributary && env --default-signal=INT,QUIT "$@"; exit $?'\'' sh "$@"
' sh "$@" || status=$?
[ "$status" != 77 ] || status=1
exit "$status"
