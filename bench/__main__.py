"""`python -m fjm2bench` is the `fjm2-bench` command."""

from fjm2.programs import fjm2_bench

fjm2_bench()
