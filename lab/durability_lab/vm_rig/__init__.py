"""Rig C: a virtual machine with NVMe and SATA drives of the lab, whose power is cut together."""
