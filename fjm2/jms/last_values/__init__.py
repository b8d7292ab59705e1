"""Last values: sends that keepers keep the latest of, and consumers that get these first."""
