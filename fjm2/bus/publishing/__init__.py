"""The part of publishing that all connections of a bus share."""
