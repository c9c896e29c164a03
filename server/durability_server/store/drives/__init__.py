"""What the store knows of drives and targets."""
