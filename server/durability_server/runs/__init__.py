"""The runs in memory: their evidence, their sessions, the answers to requests, and group commits."""
