"""The agent, which does a campaign's tasks on the machine under test."""
