"""A query's lag for people: sentences, rows, tables; for terminals, notebooks and pages alike."""
