"""What hosts say about themselves, and what that means against the plan."""
