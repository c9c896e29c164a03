"""Histories: random sequences of what can happen around a power cut, and the verdicts that they deserve."""
