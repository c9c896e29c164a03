"""Acceptance: whether a drive is taken, by the criteria of a profile and evidence gathered before."""
