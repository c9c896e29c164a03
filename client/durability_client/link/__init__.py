"""The way to the server."""
