"""Traces on Spark: lines of JSON and packet captures to tables, and tables to figures (docs/pipeline.md)."""
