"""`python -m confluence`, where the script of that name is not on the path."""

from confluence.cli.main import command

command()
