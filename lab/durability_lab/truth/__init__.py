"""What a verdict is compared with: what the drive promised and what it kept."""
