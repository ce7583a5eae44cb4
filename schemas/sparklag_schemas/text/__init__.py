"""Text for people: numbers and times, foreign text without secrets, descriptions of fields."""
