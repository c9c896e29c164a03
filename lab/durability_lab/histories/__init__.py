"""Histories: random sequences of what can happen before, during and after a power cut, and what each deserves."""
