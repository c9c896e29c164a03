"""Rig A: client, server and drive in virtual time."""
