"""State of the node-list service: tokens, nodes, measurements, and the file that keeps them."""
