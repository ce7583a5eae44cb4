"""Text for people: formats of numbers, printable characters, redaction of secrets. Pure."""
