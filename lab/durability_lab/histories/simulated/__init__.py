"""Histories in virtual time, with a simulated machine, drive and network, and the product's server."""
