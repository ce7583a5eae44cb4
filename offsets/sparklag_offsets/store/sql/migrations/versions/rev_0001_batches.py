"""Queries, their batches, and the batches' ranges as rows."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None

# MySQL would take `Orders` for `orders`. For SQLAlchemy MariaDB is another.
_BINARY: Any = {
    f"{dialect}_{option}": value
    for dialect in ("mysql", "mariadb")
    for option, value in (("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}

_COLUMNS = (
    "q.query_id, q.name AS query, b.run_id, b.generation, b.first_batch_id, b.batch_id,"
    " b.processed_at, b.is_inferred"
)
_FROM = "FROM sparklag_batches b JOIN sparklag_queries q ON q.query_key = b.query_key"

_RANGES = {
    "sqlite": f"""
        SELECT {_COLUMNS},
            json_extract(t.value, '$[0]') AS source,
            json_extract(t.value, '$[1]') AS topic,
            json_extract(t.value, '$[2]') AS topic_id,
            json_extract(r.value, '$[0]') AS partition_id,
            json_extract(r.value, '$[1]') AS from_offset,
            json_extract(r.value, '$[2]') AS until_offset
        {_FROM}, json_each(b.ranges) t, json_each(t.value, '$[4]') r""",
    "postgresql": f"""
        SELECT {_COLUMNS},
            (t.value ->> 0)::int AS source,
            t.value ->> 1 AS topic,
            t.value ->> 2 AS topic_id,
            (r.value ->> 0)::int AS partition_id,
            (r.value ->> 1)::bigint AS from_offset,
            (r.value ->> 2)::bigint AS until_offset
        {_FROM}
        CROSS JOIN LATERAL json_array_elements(b.ranges::json) t(value)
        CROSS JOIN LATERAL json_array_elements(t.value -> 4) r(value)""",
    "mysql": f"""
        SELECT {_COLUMNS},
            r.source, r.topic, r.topic_id, r.partition_id, r.from_offset, r.until_offset
        {_FROM},
        JSON_TABLE(b.ranges, '$[*]' COLUMNS (
            source INT PATH '$[0]',
            topic VARCHAR(249) PATH '$[1]',
            topic_id VARCHAR(22) PATH '$[2]',
            NESTED PATH '$[4][*]' COLUMNS (
                partition_id INT PATH '$[0]',
                from_offset BIGINT PATH '$[1]',
                until_offset BIGINT PATH '$[2]'))) r""",
}


def upgrade() -> None:
    bind = op.get_bind()
    metadata = sa.MetaData()
    queries = sa.Table(
        "sparklag_queries",
        metadata,
        sa.Column("query_key", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("query_id", sa.String(200), nullable=False),
        sa.Column("name", sa.String(700)),
        sa.Column("cluster", sa.String(700), nullable=False),
        sa.UniqueConstraint("query_id", name="sparklag_queries_by_id"),
        sa.Index("sparklag_queries_by_name", "name"),
        **_BINARY,
    )
    batches = sa.Table(
        "sparklag_batches",
        metadata,
        sa.Column("query_key", sa.Integer, sa.ForeignKey(queries.c.query_key), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True),
        sa.Column("batch_id", sa.BigInteger, primary_key=True),
        sa.Column("first_batch_id", sa.BigInteger, nullable=False),
        sa.Column("run_id", sa.String(200)),
        sa.Column("processed_at", sa.BigInteger, nullable=False),
        sa.Column("observed_at", sa.BigInteger, nullable=False),
        sa.Column("is_inferred", sa.Boolean, nullable=False),
        sa.Column(
            "ranges", sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"), nullable=False
        ),
        sa.Index("sparklag_batches_by_time", "query_key", "processed_at", "generation", "batch_id"),
        **_BINARY,
    )
    # MySQL commits each DDL statement: a process killed here has left some of them.
    for table in (queries, batches):
        table.create(bind, checkfirst=True)
        for index in table.indexes:
            index.create(bind, checkfirst=True)
    is_mysql = bind.dialect.name in ("mysql", "mariadb")
    create = "CREATE OR REPLACE VIEW" if is_mysql else "CREATE VIEW"
    select = _RANGES["mysql" if is_mysql else bind.dialect.name]
    # A colon would be a parameter.
    op.execute(sa.text(f"{create} sparklag_ranges AS {select}".replace("::", r"\:\:")))
