"""What drivers and service both run on: queue, threads, tasks, clock."""
