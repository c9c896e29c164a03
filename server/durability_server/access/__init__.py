"""Access to this server: its certificate, its clients, their join codes, and the local socket."""
