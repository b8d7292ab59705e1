"""The link to one peer: liveness, round trip, loss, rate, address and path MTU."""
