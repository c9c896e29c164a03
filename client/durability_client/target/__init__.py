"""Targets of a test: files and block devices, with the checks that protect other data."""
