"""The offset store in SQLite, PostgreSQL, MySQL and MariaDB: one schema."""
