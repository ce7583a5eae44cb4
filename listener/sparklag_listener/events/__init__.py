"""Query events, and the observations that follow from them."""
