"""The outbox on a real disk."""
