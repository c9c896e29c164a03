"""Reads every slot or name of a target in a process of its own, and finds the wrong ones."""
