"""Drives that lie on purpose and power cuts without a plug, so that the tester is itself tested."""
