"""Who may read what: principals, their tokens, and the queries they may see."""
