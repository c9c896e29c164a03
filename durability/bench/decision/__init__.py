"""From figures to a decision: what a person who has one minute needs to know of a result.

Derived from results like all else in this package; it measures nothing, and never says that a drive is safe.
"""
