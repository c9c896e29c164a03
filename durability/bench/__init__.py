"""The benchmark's pure part: what is measured, how it is summed up, what it can mean, what may be compared.

Nothing here writes to a disk or looks at a clock; `durability_client.bench` does, and hands in what it saw.
"""
