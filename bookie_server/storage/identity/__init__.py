"""Whose the directories are, and whether they are all there: cookie files, start counters, claims."""
