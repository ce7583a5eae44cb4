"""The tables, as the newest migration leaves them.

The ranges of a batch are one text: a row for each partition would be fifty times as many, and
nobody asks for one of them alone. The view `sparklag_ranges` shows them as rows.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql

LONGEST_NAME: Final = 700
"""What MySQL can have in an index."""

# MySQL would take `Orders` for `orders`. For SQLAlchemy MariaDB is another.
_BINARY: Final[Any] = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}

metadata = MetaData()

queries = Table(
    "sparklag_queries",
    metadata,
    Column("query_key", Integer, primary_key=True, autoincrement=True),
    Column("query_id", String(200), nullable=False),
    Column("name", String(LONGEST_NAME)),
    Column("cluster", String(LONGEST_NAME), nullable=False),
    UniqueConstraint("query_id", name="sparklag_queries_by_id"),
    Index("sparklag_queries_by_name", "name"),
    **_BINARY,
)

batches = Table(
    "sparklag_batches",
    metadata,
    Column("query_key", Integer, ForeignKey(queries.c.query_key), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("batch_id", BigInteger, primary_key=True),
    Column("first_batch_id", BigInteger, nullable=False),
    Column("run_id", String(200)),
    Column("processed_at", BigInteger, nullable=False),
    Column("observed_at", BigInteger, nullable=False),
    Column("is_inferred", Boolean, nullable=False),
    Column("ranges", Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"), nullable=False),
    Index("sparklag_batches_by_time", "query_key", "processed_at", "generation", "batch_id"),
    **_BINARY,
)
