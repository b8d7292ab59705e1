"""`python -m fjm2d` is the `fjm2d` command."""

from .cli import main

main(prog_name="fjm2d")
