"""Rig a: client, server and drive in virtual time."""
