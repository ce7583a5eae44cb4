"""The contracts: messages, formats, topics and settings."""

from sparklag_schemas.codec import (
    decode_lag_event as decode_lag_event,
    decode_observation as decode_observation,
    encode as encode,
)
from sparklag_schemas.messages.enumerations import (
    SCHEMA_VERSION as SCHEMA_VERSION,
    Activity as Activity,
    Cause as Cause,
    DriverEnd as DriverEnd,
    IsolationLevel as IsolationLevel,
    MeasuredBy as MeasuredBy,
    Offsets as Offsets,
    Origin as Origin,
    Status as Status,
    TimeLagMethod as TimeLagMethod,
)
from sparklag_schemas.errors import (
    ContractError as ContractError,
    MalformedMessage as MalformedMessage,
    RegistryError as RegistryError,
    SettingsError as SettingsError,
    SparklagError as SparklagError,
    UnsupportedVersion as UnsupportedVersion,
)
from sparklag_schemas.avro.formats import MessageFormats as MessageFormats
from sparklag_schemas.messages.lag_event import (
    LagEvent as LagEvent,
    OpenTransaction as OpenTransaction,
    PartitionLag as PartitionLag,
    PartitionRecord as PartitionRecord,
    TopicLag as TopicLag,
)
from sparklag_schemas.messages.observation import (
    Observation as Observation,
    SourcePosition as SourcePosition,
)
from sparklag_schemas.messages.observation import Batch as Batch
from sparklag_schemas.messages.observation import RunningBatch as RunningBatch
from sparklag_schemas.messages.observation import Straggler as Straggler
from sparklag_schemas.settings import (
    CheckpointSettings as CheckpointSettings,
    ClusterAccess as ClusterAccess,
    ClusterSettings as ClusterSettings,
    GroupSettings as GroupSettings,
    HistorySettings as HistorySettings,
    KafkaSettings as KafkaSettings,
    LiveSettings as LiveSettings,
    MetricsSettings as MetricsSettings,
    MirrorSettings as MirrorSettings,
    OtlpSettings as OtlpSettings,
    RegistrySettings as RegistrySettings,
    ResolvedSettings as ResolvedSettings,
    Settings as Settings,
    StoreSettings as StoreSettings,
    Thresholds as Thresholds,
    TimeLagSettings as TimeLagSettings,
    load_settings as load_settings,
)
