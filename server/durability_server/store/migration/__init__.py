"""Migration of a store of an earlier release, which keeps a copy of the old store."""
