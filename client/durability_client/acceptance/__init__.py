"""The client's part of acceptance: evidence from files and the server, the sheet, and the screen."""
