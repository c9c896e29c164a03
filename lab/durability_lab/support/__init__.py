"""Helpers that the rigs, the tests and the benchmarks share."""
