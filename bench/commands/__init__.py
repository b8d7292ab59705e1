"""The commands of `fjm2-bench`, each in a module of its own."""
