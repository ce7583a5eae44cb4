"""Everything that uses Kafka's protocol: bytes, connections to brokers, and aiokafka's clients."""
