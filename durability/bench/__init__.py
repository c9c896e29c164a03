"""The pure part of the benchmark: cells to measure, summaries, verdicts and comparisons.

Nothing here writes to a disk or reads a clock: `durability_client.bench` measures and passes its results in.
"""
