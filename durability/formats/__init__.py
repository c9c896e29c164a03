"""Layouts of plans, records, and documents that describe a machine and a run."""
