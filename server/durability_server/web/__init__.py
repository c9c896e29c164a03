"""The live page: shows the store to browsers and Prometheus, in a process of its own."""
