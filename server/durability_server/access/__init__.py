"""Who may talk to this server: its certificate, its clients, the codes that join them, the local socket."""
