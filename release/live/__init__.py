"""The live image: a small Debian system that boots into the agent and lives in memory alone.

    ISO --GRUB--+
                +--> kernel + memory file system (`init`, the system in one file) --> systemd --> agent
    PXE pair ---+

The boot loader, or the network, brings the kernel and all of the system. Linux looks for nothing on any disk.
"""
