"""aiokafka's producer and consumer as sparklag uses them, and the set-up of topics."""
