"""When records came, asked of Kafka itself: the timestamp that a record carries, and where the logs
ended at earlier times.

record times (what is worth asking) ──▶ leader reader (rounds) ──▶ fetch ──▶ search ──▶ record batch
                                  └──▶ earlier ends (once) ──▶ time lookup
"""
