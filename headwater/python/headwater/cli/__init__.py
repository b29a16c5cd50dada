"""The command `headwater`: its arguments, and a function for each of its commands."""
