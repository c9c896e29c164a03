"""Histories on rig b: real processes, networks and file systems."""
