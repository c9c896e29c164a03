"""Power switches, which turn a machine or a drive off and on, and the process that asks them."""
