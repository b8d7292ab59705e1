"""Systems at the same task, one run at a time, and the medians of several runs."""
