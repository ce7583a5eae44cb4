"""The contracts: what is said on the two topics."""

from sparklag_schemas.codec import decode_lag_event, decode_observation, encode
from sparklag_schemas.enumerations import (
    SCHEMA_VERSION,
    Activity,
    Cause,
    IsolationLevel,
    MeasuredBy,
    Offsets,
    Origin,
    Status,
    TimeLagMethod,
)
from sparklag_schemas.errors import (
    ContractError,
    MalformedMessage,
    RegistryError,
    SettingsError,
    SparklagError,
    UnsupportedVersion,
)
from sparklag_schemas.formats import MessageFormats
from sparklag_schemas.lag_event import LagEvent, PartitionLag, TopicLag
from sparklag_schemas.observation import Observation, SourcePosition
from sparklag_schemas.partition_record import PartitionRecord
from sparklag_schemas.query_message import Batch
from sparklag_schemas.settings import (
    CheckpointSettings,
    ClusterAccess,
    ClusterSettings,
    GroupSettings,
    HistorySettings,
    KafkaSettings,
    LiveSettings,
    MetricsSettings,
    MirrorSettings,
    OtlpSettings,
    RegistrySettings,
    ResolvedSettings,
    Settings,
    StoreSettings,
    Thresholds,
    TimeLagSettings,
)
from sparklag_schemas.settings_reading import load_settings

__all__ = [
    "SCHEMA_VERSION",
    "Activity",
    "Batch",
    "Cause",
    "CheckpointSettings",
    "ClusterAccess",
    "ClusterSettings",
    "ContractError",
    "GroupSettings",
    "HistorySettings",
    "IsolationLevel",
    "KafkaSettings",
    "LagEvent",
    "LiveSettings",
    "MalformedMessage",
    "MeasuredBy",
    "MessageFormats",
    "MetricsSettings",
    "MirrorSettings",
    "Observation",
    "Offsets",
    "Origin",
    "OtlpSettings",
    "PartitionLag",
    "PartitionRecord",
    "RegistryError",
    "RegistrySettings",
    "ResolvedSettings",
    "Settings",
    "SettingsError",
    "SourcePosition",
    "SparklagError",
    "Status",
    "StoreSettings",
    "Thresholds",
    "TimeLagMethod",
    "TimeLagSettings",
    "TopicLag",
    "UnsupportedVersion",
    "decode_lag_event",
    "decode_observation",
    "encode",
    "load_settings",
]
