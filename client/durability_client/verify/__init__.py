"""`verify`: read the target back and print the verdict."""
