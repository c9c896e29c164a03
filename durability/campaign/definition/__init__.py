"""What a campaign is to do: its file, its settings, and what they may hold."""
