"""`lab matrix`: every drive, cut again and again, each verdict graded."""
