"""The sockets: accepting connections, one connection, and the set of all connections."""
