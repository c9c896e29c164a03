"""Definition of a campaign: its file, its settings, and the rules for their values."""
