"""Built-in plans of `fjm2-bench run`."""
