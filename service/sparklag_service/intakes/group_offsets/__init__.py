"""The committed offsets of a cluster's consumer groups, asked of the brokers that keep them."""
