"""What both halves run on: queue, threads, tasks, clock."""
