"""Rig B: a drive model under a real kernel and file system."""
