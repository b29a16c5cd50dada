#!/bin/sh
# The shared library exports what headwater.h declares, and nothing else.
# Usage: exported_symbols.sh library header
set -eu
exported=$(nm -D --defined-only "$1" | awk '{ print $3 }' | sort -u)
declared=$(sed 's|/\*.*\*/||' "$2" | grep -v '^ \*' | grep -v typedef | grep -o '\bhw_[a-z0-9_]*(' |
    tr -d '(' | sort -u)
if [ "$exported" != "$declared" ]; then
    echo "exported:" $exported
    echo "declared:" $declared
    exit 1
fi
