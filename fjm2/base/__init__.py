"""Ground floor: errors, logs, counters and their text for Prometheus. Knows nothing else of FJM2."""
