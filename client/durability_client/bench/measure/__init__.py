"""The measurements of the benchmark."""
