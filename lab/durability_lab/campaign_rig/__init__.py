"""Whole campaigns in memory and in virtual time: the server's part, switches, machines with their agents."""
