"""When records came, read from Kafka: the timestamp that a record carries, and where the logs ended
at earlier times.

record times (which positions) ──▶ sampler (limits, per leader) ──▶ fetch (aiokafka's parser)
                              └──▶ earlier ends (once) ──▶ ListOffsets by time
"""
