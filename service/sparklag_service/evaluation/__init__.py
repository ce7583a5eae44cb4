"""The evaluation of queries: lag events from positions, offsets and history. Pure but the stage."""
