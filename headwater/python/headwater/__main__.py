"""`python -m headwater`, where the script of that name is not on the path."""

from headwater.cli.main import command

command()
