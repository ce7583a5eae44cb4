"""The settings: their types, and how they are read."""

from sparklag_schemas.settings.connections import (
    ClusterAccess as ClusterAccess,
)
from sparklag_schemas.settings.connections import (
    KafkaSettings as KafkaSettings,
)
from sparklag_schemas.settings.connections import (
    RegistrySettings as RegistrySettings,
)
from sparklag_schemas.settings.measuring import (
    HistorySettings as HistorySettings,
)
from sparklag_schemas.settings.measuring import (
    LimitSettings as LimitSettings,
)
from sparklag_schemas.settings.measuring import (
    LiveSettings as LiveSettings,
)
from sparklag_schemas.settings.measuring import (
    MetricsSettings as MetricsSettings,
)
from sparklag_schemas.settings.measuring import (
    OtlpSettings as OtlpSettings,
)
from sparklag_schemas.settings.measuring import (
    Thresholds as Thresholds,
)
from sparklag_schemas.settings.measuring import (
    TimeLagSettings as TimeLagSettings,
)
from sparklag_schemas.settings.measuring import (
    TracesSettings as TracesSettings,
)
from sparklag_schemas.settings.positions import (
    CheckpointSettings as CheckpointSettings,
)
from sparklag_schemas.settings.positions import (
    ClusterSettings as ClusterSettings,
)
from sparklag_schemas.settings.positions import (
    GroupSettings as GroupSettings,
)
from sparklag_schemas.settings.positions import (
    MirrorSettings as MirrorSettings,
)
from sparklag_schemas.settings.positions import (
    StoreSettings as StoreSettings,
)
from sparklag_schemas.settings.reading import load_settings as load_settings
from sparklag_schemas.settings.section import Section as Section
from sparklag_schemas.settings.settings import (
    ResolvedSettings as ResolvedSettings,
)
from sparklag_schemas.settings.settings import (
    Settings as Settings,
)
