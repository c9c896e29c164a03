"""Campaigns on the server: their logs, who conducts them, and what agents and operators ask."""
