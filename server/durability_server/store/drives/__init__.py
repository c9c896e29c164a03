"""What the store knows of drives."""
