"""What a bookie does with its clients' messages, and the carriers by which they come."""
