# need_cargo NAME PYTHON LEAST, for scripts that source this file: sets `python`, as an absolute path,
# and `version`, the 95 of cargo 1.95. Ends the script, with a line, if cargo is older than 1.LEAST.
need_cargo() {
    python=$(command -v "$2")
    case $python in /*) ;; *) python=$PWD/$python ;; esac
    version=$(cargo --version 2>/dev/null | sed 's/^cargo 1\.\([0-9]*\).*/\1/')
    if [ -z "$version" ] || [ "$version" -lt "$3" ]; then
        echo "$1: skipped, no cargo of Rust 1.$3 or later here (${version:+1.}${version:-none})"
        exit 0
    fi
}
