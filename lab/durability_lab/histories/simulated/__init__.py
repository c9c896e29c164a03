"""Histories in virtual time: a machine, a drive, a network and a server that are not real."""
