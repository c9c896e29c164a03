"""Campaigns on the server: their logs, the tasks that conduct them, and requests of agents and operators."""
