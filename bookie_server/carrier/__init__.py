"""Messages over plain sockets: what both ends of a connection share."""
