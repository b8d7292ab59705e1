"""The sending half of connections, and the keepers that store what they send."""
