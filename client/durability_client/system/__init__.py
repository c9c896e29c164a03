"""This machine: processes, programs, block devices, mounts."""
