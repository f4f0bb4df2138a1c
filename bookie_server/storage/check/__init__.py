"""What a start would find in a bookie's directories, told without starting one or writing anything."""
