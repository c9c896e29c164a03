"""Histories: random sequences of events around a power cut, and the verdicts that they deserve."""
