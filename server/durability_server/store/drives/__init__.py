"""Queries of the store about drives and targets."""
