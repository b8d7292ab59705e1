"""HTTP and TLS side of the node-list service."""
