"""The operations of a run on its slots: each workload as one object, in a module of its own."""
