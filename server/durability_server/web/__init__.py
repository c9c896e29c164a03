"""The live page: what the store holds, for browsers and Prometheus, by a process of its own."""
