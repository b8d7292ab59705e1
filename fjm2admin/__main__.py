"""`python -m fjm2admin` is the `fjm2admin` command."""

from fjm2.programs import fjm2admin

fjm2admin()
