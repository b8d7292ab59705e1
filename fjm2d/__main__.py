"""`python -m fjm2d` is the `fjm2d` command."""

from fjm2.programs import fjm2d

fjm2d()
