"""All that speaks Kafka: the protocol, the brokers' connections, and aiokafka's clients."""
