"""Last values: messages that keepers keep for consumers that come later."""
