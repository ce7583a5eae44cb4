"""The programs in examples/, run as a user runs them."""
