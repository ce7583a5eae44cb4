"""Every batch's offsets, written to the offset store."""
