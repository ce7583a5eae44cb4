"""Evaluates queries: lag events from positions, offsets and history. Pure except its stage."""
