"""The decisions of a gateway, without sockets or clocks: where nodes are, what is forwarded, and who forwards."""
