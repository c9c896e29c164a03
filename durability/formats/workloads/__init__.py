"""What a run does to its slots: each workload as one object, in a module of its own."""
