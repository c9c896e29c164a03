"""Campaigns of many cuts: settings, cycles, tasks and results. Without input or output."""
