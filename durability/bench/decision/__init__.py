"""From figures to a decision: what a reader with one minute needs to know about a result.

Everything here is derived from results. The package measures nothing and never says that a drive is safe.
"""
