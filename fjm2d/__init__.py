"""fjm2d: the gateway that joins LANs over the Internet."""
