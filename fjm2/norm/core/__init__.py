"""The NORM protocol without I/O: no sockets, no clocks, no threads."""
