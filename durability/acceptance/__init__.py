"""Acceptance: whether to accept a drive, by the criteria of a profile and evidence gathered before."""
