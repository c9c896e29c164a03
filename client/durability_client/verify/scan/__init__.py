"""Reading a target back: every slot or name, in a process of its own, and what is wrong with it."""
