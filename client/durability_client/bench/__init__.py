"""The benchmark on the machine under test: runs cells on a target, and shows what they gave."""
