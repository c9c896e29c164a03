"""Rig c: a virtual machine with an NVMe drive, and its plug."""
