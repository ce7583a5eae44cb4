"""All that speaks Kafka: the protocol's bytes, brokers and their connections, aiokafka's clients."""
