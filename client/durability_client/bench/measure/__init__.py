"""What a benchmark measures, and how."""
