"""From the queue of observations to `processed-offsets`, and to the offset store."""
