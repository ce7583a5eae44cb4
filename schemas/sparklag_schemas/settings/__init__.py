"""The settings: their types, and how they are read from files, variables, Spark and arguments."""

from sparklag_schemas.settings.connections import (
    CheckpointSettings as CheckpointSettings,
    ClusterAccess as ClusterAccess,
    ClusterSettings as ClusterSettings,
    GroupSettings as GroupSettings,
    KafkaSettings as KafkaSettings,
    MirrorSettings as MirrorSettings,
    RegistrySettings as RegistrySettings,
    SigningSettings as SigningSettings,
    StoreSettings as StoreSettings,
    TeamKey as TeamKey,
)
from sparklag_schemas.settings.http_access import (
    SCOPES as SCOPES,
    HttpGrantSettings as HttpGrantSettings,
    HttpJwtSettings as HttpJwtSettings,
    HttpTlsSettings as HttpTlsSettings,
    HttpTokenSettings as HttpTokenSettings,
    Scope as Scope,
    ServiceClientSettings as ServiceClientSettings,
)
from sparklag_schemas.settings.measuring import (
    HistorySettings as HistorySettings,
    LimitSettings as LimitSettings,
    LiveSettings as LiveSettings,
    MetricsSettings as MetricsSettings,
    OtlpSettings as OtlpSettings,
    Thresholds as Thresholds,
    TimeLagSettings as TimeLagSettings,
    TracesSettings as TracesSettings,
)
from sparklag_schemas.settings.reading import load_settings as load_settings
from sparklag_schemas.settings.section import Section as Section, SecureUrl as SecureUrl
from sparklag_schemas.settings.settings import (
    ResolvedSettings as ResolvedSettings,
    Settings as Settings,
)
