"""Rig c: a virtual machine with NVMe and SATA drives of the lab, and the plug that cuts all of them."""
