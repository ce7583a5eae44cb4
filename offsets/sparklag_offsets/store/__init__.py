"""The offset store: every batch's ranges, kept outside Spark. Its URL says in which database."""
