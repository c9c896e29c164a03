"""Campaigns as an operator begins, steers and sees them."""
