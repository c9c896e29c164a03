"""The protocol between client and server, as state machines without I/O."""
