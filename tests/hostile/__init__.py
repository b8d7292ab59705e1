"""Hostile datagrams at an engine that is at work.

The engine under attack receives from an honest sender and sends to an honest receiver, in virtual time and with losses.
Whatever else it is sent: no exception, bounded memory, bounded time for each datagram, a bounded number of events, no
more bytes out than the bytes in and the configured rate account for; and what the honest ones send arrives unaltered,
as long as nobody speaks in their names.
"""
