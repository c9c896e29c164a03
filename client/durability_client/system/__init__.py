"""Functions about this machine: processes, programs, block devices, mounts."""
