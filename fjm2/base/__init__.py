"""The lowest layer: what all others share, such as errors, logs and counters. Imports nothing else of FJM2."""
