"""Whole campaigns: with simulated parts in virtual time, and with real parts on rigs B and C."""
