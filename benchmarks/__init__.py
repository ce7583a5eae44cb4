"""What sparklag costs, side by side with the bare work it cannot do without."""
