"""The node-list service as a gateway uses it."""
