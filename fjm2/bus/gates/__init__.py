"""Gates: hooks that see every frame of a connection before the network does."""
