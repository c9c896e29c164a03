"""The operator's commands for campaigns, and their output."""
