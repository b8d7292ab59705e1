"""Plans that come with `fjm2-bench run`."""
