"""Switches of power: what turns a machine or a drive off and on, and the process that talks to them."""
