"""What readers are answered with, and what duplicates are compared with: entries on their way out."""
