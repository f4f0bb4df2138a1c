"""What storage asks of a disk: files, and checksummed groups of bytes in them."""
