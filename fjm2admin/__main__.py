"""`python -m fjm2admin`."""

from .cli import main

main(prog_name="fjm2admin")
