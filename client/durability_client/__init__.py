"""The client, on the machine under test: writes, syncs and acknowledges; after the cut, reads and judges."""
