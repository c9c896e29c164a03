"""Output of the benchmark: results and comparisons on the terminal, and as HTML pages with pictures."""
