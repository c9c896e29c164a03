"""The evidence of all runs in a database."""
