"""The benchmark on the machine under test: measures cells on a target, and shows the results."""
