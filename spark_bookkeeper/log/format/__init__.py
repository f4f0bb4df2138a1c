"""What a log keeps, as values, and the bytes of its nodes."""
