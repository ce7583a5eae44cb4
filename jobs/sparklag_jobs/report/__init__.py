"""The report on the history of lag: makes a page from rows of the roll-ups."""
