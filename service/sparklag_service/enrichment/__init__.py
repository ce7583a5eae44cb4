"""Latest and earliest offsets of each cluster, read from the partition leaders."""
