"""What client and server say to each other, as state machines without I/O."""
