"""`python -m fjm2` is the `fjm2` command."""

from .programs import fjm2

fjm2()
