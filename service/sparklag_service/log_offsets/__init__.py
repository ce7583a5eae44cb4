"""How Kafka is asked for its log offsets: each broker by itself, and none for another's sake.

watched cluster (who leads what) ──▶ leader channel (rounds) ──▶ broker link ──▶ offset table
"""
