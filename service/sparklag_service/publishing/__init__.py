"""What is said, when, and to which topic."""
