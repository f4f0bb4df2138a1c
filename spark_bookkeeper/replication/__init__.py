"""Auto-recovery: finds what lost copies, and has it copied again."""
