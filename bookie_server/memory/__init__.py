"""What clients may make a bookie hold in memory, and what becomes of those who hold on to it."""
