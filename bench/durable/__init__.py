"""Durable topics, beside those of other systems: throughput, awaited sends, and messages that wait."""
