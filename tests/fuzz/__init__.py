"""Messages, files and names that nobody would write by mistake."""
