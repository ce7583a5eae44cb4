"""One frozen settings object, read once at the edge.

In rising order: `sparklag.toml`, the environment (`SPARKLAG_HTTP_PORT`, nested with two
underscores: `SPARKLAG_KAFKA__SASL_USERNAME`, `SPARKLAG_CLUSTERS__EAST__BOOTSTRAP_SERVERS` for the
cluster with alias `east`), files of a secrets folder (named like the variable,
the content is the value), and what the caller passes.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from sparklag_schemas.errors import SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_PREFIX = "SPARKLAG_"
_NOT_SETTINGS = {"SPARKLAG_CONFIG", "SPARKLAG_SECRETS_DIR", "SPARKLAG_URL"}
"""Variables of ours that say where to look, and are not settings themselves."""

# Kubernetes puts the address of each Service into every container beside it: of one that is called
# sparklag, SPARKLAG_SERVICE_HOST, SPARKLAG_PORT, SPARKLAG_PORT_8085_TCP_ADDR and so on.
_SERVICE_LINK = re.compile(
    r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP)(_\w+)?)=|_PORT=\w+://"
)

_Section = TypeVar("_Section", bound=Struct)

Seconds = Annotated[float, Meta(gt=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]


class KafkaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to connect to Kafka. The names are aiokafka's and librdkafka's."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: str | None = None
    ssl_check_hostname: bool = True
    client_id: str = "sparklag"
    request_timeout_s: Seconds = 10.0

    def __post_init__(self) -> None:
        if self.security_protocol.startswith("SASL") and not (
            self.sasl_username and self.sasl_password
        ):
            raise ValueError(
                f"security_protocol={self.security_protocol} needs sasl_username and sasl_password"
            )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={'***' if name.endswith('password') and value else repr(value)}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) is not None
        )
        return f"KafkaSettings({shown})"


class CheckpointSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checkpoints that the service reads by itself."""

    locations: list[str] = []
    """Paths, or patterns with `*`, of queries that read from the home cluster."""
    follow: list[str] = []
    """What a driver says of its checkpoint is watched too where it begins with one of these."""
    interval_s: Seconds = 5.0
    """How often each is looked at."""
    find_interval_s: Seconds = 60.0
    """How often patterns are looked at for checkpoints that are new."""
    timeout_s: Seconds = 30.0
    """Deadline of one look."""
    storage: dict[str, dict[str, Any]] = {}
    """fsspec's options by the scheme of a location: `storage.s3.endpoint_url`."""

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={getattr(self, name)!r}"
            for name in self.__struct_fields__
            if name != "storage"
        )
        # Most of them are secrets.
        return f"CheckpointSettings({shown}, storage={dict.fromkeys(self.storage, '***')})"


class GroupSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ordinary consumer groups whose lag is measured too. Patterns are regular expressions of whole
    group ids."""

    allow: list[str] = []
    """None: no group is looked at."""
    deny: list[str] = []
    interval_s: Seconds = 5.0
    """How often committed offsets are read."""
    find_interval_s: Seconds = 30.0
    """How often the list of groups is read."""

    def __post_init__(self) -> None:
        for pattern in (*self.allow, *self.deny):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(
                    f"{pattern!r} is not a regular expression of group ids: {error}"
                ) from None


class ClusterSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Kafka cluster that queries read from, other than the one that carries sparklag's topics."""

    bootstrap_servers: str
    kafka: KafkaSettings = KafkaSettings()
    addresses: str = ""
    """Other names of its brokers, host:port with commas: as drivers see them, behind a proxy."""
    checkpoints: list[str] = []
    """Paths or patterns of checkpoints whose queries read from this cluster."""
    groups: GroupSettings = GroupSettings()


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything sparklag can be told. Durations are seconds."""

    bootstrap_servers: str | None = None
    """Brokers that carry sparklag's topics. In a driver, None takes those the query reads from."""
    kafka: KafkaSettings = KafkaSettings()
    cluster: str = "default"
    """Alias of that Kafka cluster in every message."""
    clusters: dict[str, ClusterSettings] = {}
    """By alias: clusters that queries read from besides that one, each with its own security."""

    offsets_topic: str = "processed-offsets"
    lag_topic: str = "consumer-lag"
    create_topics: bool = True
    """Create them where they are missing and the rights allow it."""
    topic_partitions: Annotated[int, Meta(ge=1)] = 12
    topic_replication_factor: Annotated[int, Meta(ge=1)] | None = None
    """None: 3, or as many as there are brokers."""

    group_id: str = "sparklag"
    queue_size: Annotated[int, Meta(ge=1)] = 10_000
    """Observations held, in a driver or the service, before older ones of a query give way."""

    refresh_interval_s: Seconds = 1.0
    """How often lag is measured again without any event."""
    publish_interval_s: Annotated[float, Meta(ge=0)] = 1.0
    """A query's refreshed lag is published at most this often."""
    heartbeat_s: Seconds = 10.0
    """Every query is published at least this often, changed or not; drivers say as often that a
    query runs."""
    earliest_interval_s: Seconds = 10.0
    metadata_interval_s: Seconds = 10.0
    measure_timeout_s: Seconds = 5.0
    """Deadline of one broker's answer, and how long a query waits for one that was quick before."""
    latest_max_age_s: Seconds = 60.0
    """How long a latest offset that cannot be read again still counts; then it is unknown."""
    keep_s: Annotated[float, Meta(ge=0)] = 86_400.0
    """How long a query that was terminated is still measured and shown."""
    shutdown_timeout_s: Seconds = 10.0

    checkpoints: CheckpointSettings = CheckpointSettings()
    groups: GroupSettings = GroupSettings()
    """Of the home cluster."""

    http_host: str = "127.0.0.1"
    http_port: Port = 8085
    """0 takes a free one."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    def __post_init__(self) -> None:
        if self.cluster in self.clusters:
            raise ValueError(
                f"clusters.{self.cluster} has the alias of the cluster that carries sparklag's"
                f" topics (cluster = {self.cluster!r}): one of them needs another"
            )
        if "" in self.clusters:
            raise ValueError("clusters: an alias is empty")


def load_settings(
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings from file, environment, secret files and `overrides` (None values ignored).

    `config`: the TOML file; without it SPARKLAG_CONFIG, else `sparklag.toml` here if it is there.
    Raises SettingsError with one line naming the setting, what it got and what it takes.
    """
    environ = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    path = config or (Path(environ["SPARKLAG_CONFIG"]) if "SPARKLAG_CONFIG" in environ else None)
    if path is not None or Path("sparklag.toml").is_file():
        merged = _read_toml(path or Path("sparklag.toml"))
    _merge(merged, _from_variables(environ, "environment"))
    _merge(merged, _from_variables(_secret_files(environ), "secret file"))
    told = {name: value for name, value in (overrides or {}).items() if value is not None}
    _refuse_unknown(told, Settings, "arguments")
    _merge(merged, told)
    return _convert(merged)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"no settings file at {path}") from None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    _refuse_unknown(found, Settings, str(path))
    return found


def _from_variables(variables: Mapping[str, str], origin: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for variable, value in variables.items():
        if not variable.startswith(_PREFIX) or variable in _NOT_SETTINGS:
            continue
        if _SERVICE_LINK.search(f"{variable}={value}"):
            continue
        *parents, leaf = variable[len(_PREFIX) :].lower().split("__")
        place = found
        for depth, parent in enumerate(parents, start=1):
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                other = _PREFIX + "__".join(parents[:depth]).upper()
                raise SettingsError(f"{origin}: {variable} and {other} clash")
        place[leaf] = value
    _refuse_unknown(found, Settings, origin, prefix=_PREFIX)
    return found


def _secret_files(environ: Mapping[str, str]) -> dict[str, str]:
    folder = Path(environ.get("SPARKLAG_SECRETS_DIR", "/run/secrets"))
    if not folder.is_dir():
        return {}
    return {
        file.name.upper(): file.read_text(encoding="utf-8").strip()
        for file in folder.iterdir()
        if file.name.upper().startswith(_PREFIX) and file.is_file()
    }


def _refuse_unknown(
    found: Mapping[str, Any], into: type[Struct], origin: str, *, prefix: str = "", path: str = ""
) -> None:
    for name, value in found.items():
        if name not in into.__struct_fields__:
            near = difflib.get_close_matches(name, into.__struct_fields__, n=1)
            hint = f", did you mean {_shown(path + near[0], prefix)}?" if near else ""
            raise SettingsError(f"{origin}: unknown setting {_shown(path + name, prefix)}{hint}")
        for below, inside, section in _sections(into, name, value):
            _refuse_unknown(inside, section, origin, prefix=prefix, path=f"{path}{below}.")


def _sections(
    into: type[Struct], name: str, value: object
) -> Iterator[tuple[str, Mapping[str, Any], type[Struct]]]:
    """Where setting `name` holds settings of its own: each place, what is there, and its type."""
    kind = get_type_hints(into)[name]
    if not isinstance(value, Mapping):
        return
    if get_origin(kind) is dict:
        if not hasattr(get_args(kind)[1], "__struct_fields__"):
            return
        for alias, inside in value.items():
            if isinstance(inside, Mapping):
                yield f"{name}.{alias}", inside, get_args(kind)[1]
    elif isinstance(kind, type) and issubclass(kind, Struct):
        yield name, value, kind


def _shown(dotted: str, prefix: str) -> str:
    return prefix + dotted.replace(".", "__").upper() if prefix else dotted


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = dict(value) if isinstance(value, Mapping) else value


def _split_lists(found: dict[str, Any], into: type[Struct]) -> None:
    """A list may be written as one text, with commas: in the environment there is no other way."""
    for name, kind in get_type_hints(into).items():
        value = found.get(name)
        if get_origin(kind) is list and isinstance(value, str):
            found[name] = [item for part in value.split(",") if (item := part.strip())]
    for name, value in found.items():
        for _, inside, section in _sections(into, name, value):
            if isinstance(inside, dict):
                _split_lists(inside, section)


def _convert(merged: dict[str, Any]) -> Settings:
    _split_lists(merged, Settings)
    clusters = merged.get("clusters")
    if isinstance(clusters, Mapping):
        # Each by itself: msgspec does not say which key of a mapping is wrong.
        merged["clusters"] = {
            alias: _section(found, ClusterSettings, f"clusters.{alias}.")
            for alias, found in clusters.items()
        }
    return _section(merged, Settings, "")


def _section(found: Any, into: type[_Section], path: str) -> _Section:
    """`found` as settings of that type, which stand at `path`."""
    try:
        return msgspec.convert(found, into, strict=False)
    except msgspec.ValidationError as error:
        # msgspec says "Expected `int`, got `str` - at `$.http_port`".
        expectation, _, place = str(error).partition(" - at ")
        names = [name for name in place.strip("`").removeprefix("$").split(".") if name]
        dotted = f"{path}{'.'.join(names)}".rstrip(".")
        if not dotted:
            raise SettingsError(f"settings: {expectation}") from error
        got, kind = found, into
        for name in names:
            got = got.get(name) if isinstance(got, Mapping) else got
            kind = get_type_hints(kind)[name] if hasattr(kind, "__struct_fields__") else kind
        one_value = not hasattr(kind, "__struct_fields__") and get_origin(kind) is not dict
        if not one_value or not isinstance(got, str | int | float):
            # Whatever stands there may hold a secret.
            raise SettingsError(f"setting {dotted}: {expectation}") from error
        secret = "password" in dotted or dotted.startswith("checkpoints.storage")
        shown = "***" if secret else repr(got)
        if expectation.startswith("Invalid enum value"):
            *most, last = get_args(kind)
            expectation = f"takes {', '.join(most)} or {last}"
        raise SettingsError(f"setting {dotted} = {shown}: {expectation}") from error
