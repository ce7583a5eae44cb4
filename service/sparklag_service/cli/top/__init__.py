"""`sparklag top`: all queries live in a terminal. `app`, `screens` and `table` need Textual."""
