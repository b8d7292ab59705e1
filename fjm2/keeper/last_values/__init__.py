"""The last values of topics, which a keeper keeps for consumers that come later."""
