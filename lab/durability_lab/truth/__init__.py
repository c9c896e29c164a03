"""The truth that verdicts are compared with: what the drive promised and which promises it kept."""
