"""The machine under test: writes, syncs, acknowledges; after the cut, reads back and judges."""
