"""The version of the package, which packs and `--version` name."""

VERSION = "0.1.0"
