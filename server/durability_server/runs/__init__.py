"""The runs in memory: their evidence, who speaks for them, what each request means, and group commits."""
