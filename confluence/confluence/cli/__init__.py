"""The command `confluence`: its arguments, and a function for each of its commands."""
