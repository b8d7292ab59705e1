"""The messages of all benchmarks, their check and count by subscribers, and the results that programs print."""
