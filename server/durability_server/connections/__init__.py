"""The sockets: who may connect, one connection, and all of them together."""
