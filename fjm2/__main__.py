"""`python -m fjm2` is the `fjm2` command."""

from .commands import main

main(prog_name="fjm2")
