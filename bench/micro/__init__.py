"""Microbenchmarks: the cost of single functions."""
