"""The client's part of acceptance: evidence from files and the server, the report page, and the screen."""
