"""`sparklag check`: what a Kafka must have for sparklag to work with it, and what runs there."""
