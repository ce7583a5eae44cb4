"""The runtime of drivers and service: queue, threads, tasks, logs, garbage collection."""
