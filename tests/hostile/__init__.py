"""Attacks with hostile datagrams on an engine that is at work.

The attacked engine receives from an honest sender and sends to an honest receiver, in virtual time and with losses.
Whatever it receives, it must raise no exception, and its memory, its time for each datagram and its number of events
must be bounded. It must send no more bytes than those it received and its configured rate account for. The data of the
honest nodes must arrive unaltered, as long as no attacker sends in their names.
"""
