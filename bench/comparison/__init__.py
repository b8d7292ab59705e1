"""Comparison of systems at the same task: single runs, and the medians of several runs."""
