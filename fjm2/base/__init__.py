"""The lowest layer: errors, logs, counters, event-loop turns and token buckets. Imports nothing else of FJM2."""
