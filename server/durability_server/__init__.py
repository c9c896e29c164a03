"""The machine that stays up: receives acknowledgements, makes them durable, keeps every run's evidence."""
