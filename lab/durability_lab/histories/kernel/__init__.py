"""Histories on rig B: real processes, networks and file systems."""
