"""The committed offsets of a cluster's consumer groups, read from their coordinators."""
