"""The messages of all benchmarks, how a subscriber checks and counts them, and the results that programs print."""
