"""The command line: commands, their options and what they print when they fail."""

import os

# Else NumPy starts a thread for each processor when it is loaded, for linear algebra. Nothing uses that; the
# threads cost a seventh of a command's start, and would run beside what is measured.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
