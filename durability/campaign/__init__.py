"""Campaigns of many cuts: settings, cycles, tasks and what they amount to; pure."""
