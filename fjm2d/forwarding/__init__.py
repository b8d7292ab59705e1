"""What a gateway decides: who is where, what goes on, and which gateway of a LAN does it. No sockets and no clocks."""
