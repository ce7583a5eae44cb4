"""Settings: their sources, the order of these, and the errors for wrong ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints

import pytest

from sparklag_schemas import Settings, SettingsError, Thresholds, load_settings
from sparklag_schemas.settings import ClusterSettings, RegistrySettings, Section, TeamKey


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refusal(**sources: Any) -> str:
    """The error for the settings: one line without a secret."""
    with pytest.raises(SettingsError) as refused:
        load_settings(**{"environ": {}, **sources})
    line = str(refused.value)
    assert "\n" not in line
    for secret in ("hush", "hunter2"):
        assert secret not in line
        assert secret not in str(refused.value.__cause__)
    return line


def test_each_source_overrides_the_one_below_it(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('group_id = "file"\nlag_topic = "file"\noffsets_topic = "file"\ncluster="file"')
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "sparklag_offsets_topic").write_text("secret\n")
    (secrets / "sparklag_cluster").write_text("secret\n")
    result = load_settings(
        config=file,
        environ={
            "SPARKLAG_LAG_TOPIC": "environment",
            "SPARKLAG_OFFSETS_TOPIC": "environment",
            "SPARKLAG_CLUSTER": "environment",
            "SPARKLAG_SECRETS_DIR": str(secrets),
        },
        spark_configuration={"partitionTopic": "spark", "cluster": "spark"},
        overrides={"cluster": "call", "group_id": None},
    )
    assert (result.group_id, result.lag_topic) == ("file", "environment")
    assert (result.offsets_topic, result.partition_topic) == ("secret", "spark")
    assert result.cluster == "call"


def test_names_in_sparks_configuration_are_spelled_as_sparks_own() -> None:
    result = load_settings(
        environ={},
        spark_configuration={
            "bootstrapServers": "home:9092",
            "kafka.securityProtocol": "SASL_SSL",
            "kafka.saslUsername": "me",
            "kafka.sasl_password": "hush",
            "clusters.EastCoast.bootstrapServers": "east:9092",
            "http_port": "9",
        },
    )
    assert (result.bootstrap_servers, result.http_port) == ("home:9092", 9)
    assert (result.kafka.sasl_username, result.kafka.sasl_password) == ("me", "hush")
    assert result.clusters["EastCoast"].bootstrap_servers == "east:9092"


@pytest.mark.parametrize(
    ("configuration", "line"),
    [
        (
            {"bootstrapServer": "a:1"},
            "Spark's configuration: unknown setting spark.sparklag.bootstrapServer,"
            " did you mean spark.sparklag.bootstrapServers?",
        ),
        (
            {"kafka.saslUser": "me"},
            "Spark's configuration: unknown setting spark.sparklag.kafka.saslUser,"
            " did you mean spark.sparklag.kafka.saslUsername?",
        ),
        (
            {"kafka": "a", "kafka.saslUsername": "me"},
            "Spark's configuration: spark.sparklag.kafka.saslUsername and spark.sparklag.kafka"
            " clash",
        ),
        ({"": "a"}, "Spark's configuration: unknown setting spark.sparklag."),
        ({"..": "a"}, "Spark's configuration: unknown setting spark.sparklag."),
        ({"cluster.x.y": "a"}, "setting cluster: Expected `str`, got `object`"),
        ({"httpPort": "x"}, "setting http_port = 'x': Expected `int`, got `str`"),
    ],
)
def test_a_wrong_spark_setting_is_named(configuration: dict[str, str], line: str) -> None:
    assert refusal(spark_configuration=configuration) == line


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a, b,", ["a", "b"]),
        ('["g[0-9]{1,3}", "b"]', ["g[0-9]{1,3}", "b"]),
        (" [ ]", []),
        ("[a-z]+", ["[a-z]+"]),
    ],
)
def test_a_list_in_a_variable_takes_commas_or_a_json_array(text: str, items: list[str]) -> None:
    assert load_settings(environ={"SPARKLAG_GROUPS__ALLOW": text}).groups.allow == items


@pytest.mark.parametrize("text", ['["a", "b"', '["a" b]', '["a"] and more'])
def test_a_list_that_is_almost_json_is_refused(text: str) -> None:
    line = refusal(environ={"SPARKLAG_GROUPS__ALLOW": text})
    assert line.startswith("setting groups.allow begins like a JSON array")


def test_variables_of_a_kubernetes_service_called_sparklag_are_no_settings() -> None:
    links = {
        "SPARKLAG_SERVICE_HOST": "10.0.0.7",
        "SPARKLAG_SERVICE_PORT": "8085",
        "SPARKLAG_SERVICE_PORT_HTTP": "8085",
        "SPARKLAG_PORT": "tcp://10.0.0.7:8085",
        "SPARKLAG_PORT_8085_TCP": "tcp://10.0.0.7:8085",
        "SPARKLAG_PORT_8085_TCP_ADDR": "10.0.0.7",
        # Of a Service called sparklag-http: it hides no setting written by hand.
        "SPARKLAG_HTTP_PORT": "tcp://10.0.0.8:80",
    }
    assert load_settings(environ=links) == Settings()
    assert load_settings(environ=links | {"SPARKLAG_HTTP_PORT": "80"}).http_port == 80


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"SPARKLAG_HTTP_PORT": "many"}, "setting http_port = 'many': Expected `int`"),
        ({"SPARKLAG_HTTP_PORT": "70000"}, "http_port = '70000': Expected `int` <= 65535"),
        ({"SPARKLAG_REFRESH_INTERVAL_S": "0"}, "refresh_interval_s = '0'"),
        ({"SPARKLAG_HTTP_PRT": "1"}, "SPARKLAG_HTTP_PRT, did you mean SPARKLAG_HTTP_PORT?"),
        ({"SPARKLAG_KAFKA__USER": "1"}, "unknown setting SPARKLAG_KAFKA__USER"),
        ({"SPARKLAG_KAFKA__HTTP_PORT": "1"}, "did you mean SPARKLAG_HTTP_PORT?"),
        (
            {"SPARKLAG_KAFKA__SECURITY_PROTOCOL": "TLS"},
            "kafka.security_protocol = 'TLS': takes PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        ),
        (
            {"SPARKLAG_KAFKA__SECURITY_PROTOCOL": "SASL_SSL"},
            "needs sasl_username and sasl_password",
        ),
        ({"SPARKLAG_KAFKA": "x"}, "setting kafka"),
        (
            {"SPARKLAG_METRICS__COMPAT": "kafka_exporter, burrow"},
            "setting metrics.compat = 'burrow': takes kafka-lag-exporter or kafka_exporter",
        ),
        ({"SPARKLAG_INSTANCE": "a b"}, "instance = 'a b': takes 1 to 200 characters of ASCII"),
        (
            {"SPARKLAG_GRAFANA_URL": "grafana:3000"},
            "grafana_url = 'grafana:3000': takes http(s)://host[:port]",
        ),
        ({"SPARKLAG_METRICS__EXCLUDE": "("}, "'(' is not a regular expression of queries"),
        ({"SPARKLAG_CHECKPOINTS__STORAGE__S3": "hush"}, "setting checkpoints.storage: Expected"),
        ({"SPARKLAG_THRESHOLDS__A__WINDOW": "1"}, "setting thresholds.a.window = '1'"),
        ({"SPARKLAG_THRESHOLDS__A__MAXLAG": "1"}, "did you mean SPARKLAG_THRESHOLDS__A__MAX_LAG?"),
        ({"SPARKLAG_THRESHOLDS__(__WINDOW": "2"}, "not a regular expression of queries"),
        ({"SPARKLAG_REFRESH_INTERVALS__A": "often"}, "setting refresh_intervals.a = 'often'"),
        ({"SPARKLAG_REFRESH_INTERVALS__A": "0"}, "setting refresh_intervals.a = '0'"),
        ({"SPARKLAG_REFRESH_INTERVALS__(": "2"}, "not a regular expression of queries"),
        (
            {"SPARKLAG_REFRESH_INTERVALS__A": "0.5"},
            "refresh_intervals.'a' = 0.5: takes refresh_interval_s (1) to heartbeat_s (10)",
        ),
        (
            {"SPARKLAG_REFRESH_INTERVALS__A": "60"},
            "refresh_intervals.'a' = 60: takes refresh_interval_s (1) to heartbeat_s (10), at which"
            " every query is measured and published",
        ),
        ({"SPARKLAG_REFRESH_INTERVALS": "5"}, "setting refresh_intervals"),
        ({"SPARKLAG_CONFIG": "none.toml"}, "no settings file at none.toml"),
        ({"SPARKLAG_FORMAT": "avro"}, "format = 'avro' needs registry.url"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(environ: dict[str, str], line: str) -> None:
    assert line in refusal(environ=environ)


def test_the_first_matching_pattern_sets_the_thresholds_of_a_query(tmp_path: Path) -> None:
    (tmp_path / "sparklag.toml").write_text(
        """
        [thresholds."payments-.*"]
        max_lag = 10
        [thresholds."1b2c"]
        window = 3
        [thresholds.".*"]
        stall_after_s = 60
        """
    )
    result = load_settings(environ={})
    assert result.thresholds_of("payments-eu", "1b2c").max_lag == 10
    assert result.thresholds_of(None, "1b2c").window == 3
    assert result.thresholds_of("my-payments-eu", "other") == Thresholds(stall_after_s=60)
    assert Settings().thresholds_of("any", "id") == Thresholds()


def test_the_first_matching_pattern_sets_the_refresh_interval_of_a_query(tmp_path: Path) -> None:
    (tmp_path / "sparklag.toml").write_text(
        """
        [refresh_intervals]
        "archive-.*" = 10
        "1b2c" = 5.5
        ".*-daily" = 2
        """
    )
    settings = load_settings(environ={})
    assert settings.refresh_interval_of("archive-daily", "1b2c") == 10
    assert settings.refresh_interval_of(None, "1b2c") == 5.5
    assert settings.refresh_interval_of("orders-daily", "id") == 2
    assert settings.refresh_interval_of("orders", "id") == settings.refresh_interval_s


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("http_port: 1", "sparklag.toml is not TOML"),
        ("[kafka]\nsasl_user = 'x'", "kafka.sasl_user, did you mean kafka.sasl_username?"),
        (
            "[kafka]\ncreate_topics = false",
            "kafka.create_topics, did you mean create_topics, above the first [section]?",
        ),
        (
            "[clusters.east.kafka]\nsasl_pasword = 'hush'",
            "sparklag.toml: unknown setting clusters.east.kafka.sasl_pasword,"
            " did you mean clusters.east.kafka.sasl_password?",
        ),
        ("http_port = 99999", "sparklag.toml: setting http_port = 99999"),
        ("[thresholds.o]\nwindow = -1", "sparklag.toml: setting thresholds.o.window = -1"),
    ],
)
def test_an_error_in_the_file_uses_its_names(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "sparklag.toml").write_text(text)
    assert line in refusal()


# More than one cluster.

EAST = "SPARKLAG_CLUSTERS__EAST__"
EAST_SECURED = {
    f"{EAST}BOOTSTRAP_SERVERS": "east:9092",
    f"{EAST}KAFKA__SECURITY_PROTOCOL": "SASL_SSL",
    f"{EAST}KAFKA__SASL_USERNAME": "me",
    f"{EAST}KAFKA__SASL_PASSWORD": "hush",
}


def test_a_cluster_comes_from_variables_with_its_own_security() -> None:
    result = load_settings(environ=EAST_SECURED | {"SPARKLAG_KAFKA__CLIENT_ID": "home"})
    east = result.clusters["east"]
    assert (east.bootstrap_servers, east.addresses) == ("east:9092", "")
    assert (east.kafka.security_protocol, east.kafka.sasl_password) == ("SASL_SSL", "hush")
    assert (result.kafka.security_protocol, east.kafka.client_id) == ("PLAINTEXT", "sparklag")


def test_secret_files_complete_the_clusters_of_the_settings_file(tmp_path: Path) -> None:
    (tmp_path / "sparklag.toml").write_text(
        """
        [clusters.east]
        bootstrap_servers = "east:9092"
        addresses = "10.0.0.1:9092"
        [clusters.east.kafka]
        security_protocol = "SASL_SSL"
        sasl_username = "me"
        [clusters.east_file]
        bootstrap_servers = "west:9092"
        """
    )
    (tmp_path / "sparklag_clusters__east__kafka__sasl_password").write_text("hush\n")
    environ = {"SPARKLAG_SECRETS_DIR": str(tmp_path)}
    result = load_settings(environ=environ)
    assert result.clusters["east"].addresses == "10.0.0.1:9092"
    east = result.clusters["east"].kafka
    assert east.sasl_password is None
    assert Path(str(east.sasl_password_file)).read_text() == "hush\n"
    later = {"clusters": {"east": {"kafka": {"sasl_password": "later"}}}}
    clusters = load_settings(environ=environ, overrides=later).clusters
    east = clusters["east"].kafka
    assert clusters.keys() == {"east", "east_file"}
    assert (east.sasl_password, east.sasl_password_file) == ("later", None)


def test_clusters_may_be_passed_as_objects() -> None:
    east = ClusterSettings(bootstrap_servers="east:9092")
    overrides = {"clusters": {"east": east}}
    assert load_settings(environ={}, overrides=overrides).clusters == {"east": east}


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (
            {f"{EAST}BOOTSTRAP": "east:9092"},
            f"environment: unknown setting {EAST}BOOTSTRAP, did you mean {EAST}BOOTSTRAP_SERVERS?",
        ),
        (
            {f"{EAST}KAFKA__SASL_USER": "me"},
            f"environment: unknown setting {EAST}KAFKA__SASL_USER,"
            f" did you mean {EAST}KAFKA__SASL_USERNAME?",
        ),
        (
            {f"{EAST}ADDRESSES": "east:9092"},
            "setting clusters.east: Object missing required field `bootstrap_servers`",
        ),
        (
            EAST_SECURED | {f"{EAST}KAFKA__SECURITY_PROTOCOL": "TLS"},
            "setting clusters.east.kafka.security_protocol = 'TLS':"
            " takes PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        ),
        (
            EAST_SECURED | {f"{EAST}KAFKA__SASL_PASSWORD": ""},
            f"environment: {EAST}KAFKA__SASL_PASSWORD is empty: set a value, or leave the setting"
            " out",
        ),
        (
            EAST_SECURED | {f"{EAST}KAFKA__REQUEST_TIMEOUT_S": "0"},
            "setting clusters.east.kafka.request_timeout_s = '0': Expected `float` > 0.0",
        ),
        (
            EAST_SECURED | {"SPARKLAG_CLUSTER": "east"},
            "settings: clusters.east has the alias of the cluster that carries sparklag's topics"
            " (cluster = 'east'): one of them needs another",
        ),
        (
            {"SPARKLAG_CLUSTERS__DEFAULT__BOOTSTRAP_SERVERS": "east:9092"},
            "settings: clusters.default has the alias of the cluster that carries sparklag's topics"
            " (cluster = 'default'): one of them needs another",
        ),
        (
            {"SPARKLAG_CLUSTERS____BOOTSTRAP_SERVERS": "east:9092"},
            "settings: clusters: an alias is empty",
        ),
        ({"SPARKLAG_CLUSTERS": "hush"}, "setting clusters: Expected `object`, got `str`"),
        ({EAST[:-2]: "hush"}, "setting clusters.east: Expected `object`, got `str`"),
        (
            EAST_SECURED | {f"{EAST}KAFKA__SASL_PASSWORD__X": "1"},
            f"environment: {EAST}KAFKA__SASL_PASSWORD__X and {EAST}KAFKA__SASL_PASSWORD clash",
        ),
    ],
)
def test_a_wrong_cluster_setting_is_named_in_a_line(environ: dict[str, str], line: str) -> None:
    assert refusal(environ=environ) == line


def test_a_wrong_setting_of_an_alias_with_dots_is_named_too() -> None:
    overrides = {"clusters": {"eu.west": {"bootstrap_servers": 5, "kafka": {}}}}
    line = "setting clusters.eu.west.bootstrap_servers = 5: Expected `str`, got `int`"
    assert refusal(overrides=overrides) == line


@pytest.mark.parametrize(
    "overrides",
    [
        {"kafka": "sasl_password=hush"},
        {"kafka": ["hush"]},
        {"kafka": {"sasl_password": ["hush"]}},
        {"clusters": ["hush"]},
        {"clusters": {"east": "hush"}},
        {"clusters": {"east": {"bootstrap_servers": "east:9092", "kafka": "hush"}}},
        {
            "clusters": {
                "east": {"bootstrap_servers": "east:9092", "kafka": {"sasl_password": ["hush"]}}
            }
        },
        {"clusters": {"east": {"bootstrap_servers": ["hush"]}}},
        {"clusters": {"east": {"bootstrap_servers": "me:hush@east:9092"}}},
        {"bootstrap_servers": "SASL_SSL://home:9092,me:hu/hush@home:9093"},
        {"addresses": "me:hush@proxy:9092"},
    ],
)
def test_a_wrong_value_that_may_be_a_secret_is_not_shown(overrides: dict[str, object]) -> None:
    assert refusal(overrides=overrides)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("registry:8081", "takes http"),
        ("ftp://registry", "takes http"),
        ("user:hunter2@registry:8081", ""),
        ("http://me:hunter2@registry:8081", r"registry\.username"),
        ("https://user:a/hunter2@h", ""),
        ("https://h?token=hunter2", ""),
    ],
)
def test_the_error_for_a_registrys_url_shows_no_secret(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"^registry\.url = .*{message}") as refusal:
        RegistrySettings(url=url)
    assert "hunter2" not in str(refusal.value)


def leaves(of: type[Any] = Settings, *above: str) -> Iterator[tuple[str, ...]]:
    for name, kind in get_type_hints(of).items():
        steps = (*above, name)
        if get_origin(kind) is dict:
            steps, kind = (*steps, "east"), get_args(kind)[1]
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from leaves(kind, *steps)
        else:
            yield steps


@pytest.mark.parametrize("empty", ["", " ,\n\u00a0"], ids=["", "blank"])
@pytest.mark.parametrize("steps", [*leaves()], ids=".".join)
def test_an_empty_setting_is_refused(steps: tuple[str, ...], empty: str, tmp_path: Path) -> None:
    variable, dotted = f"SPARKLAG_{'__'.join(steps).upper()}", ".".join(steps)
    means = "is empty: set a value, or leave the setting out"
    assert refusal(environ={variable: empty}) == f"environment: {variable} {means}"

    nested: Any = empty
    for step in reversed(steps):
        nested = {step: nested}
    assert refusal(overrides=nested) == f"arguments: {dotted} {means}"
    assert refusal(spark_configuration={dotted: empty}).endswith(means)

    (tmp_path / variable).write_text(empty)
    line = refusal(environ={"SPARKLAG_SECRETS_DIR": str(tmp_path)})
    assert line == f"secret file: {variable} {means}"

    file = tmp_path / "sparklag.toml"
    file.write_text(f"{dotted} = {json.dumps(empty)}")
    assert refusal() == f"sparklag.toml: {dotted} {means}"


KEY = "k" * 16
TEAM: dict[str, Any] = {"key": "a" * 16, "queries": ["a-.*"]}


def teams(**keys: dict[str, Any]) -> dict[str, Any]:
    return {"overrides": {"signing_key": KEY, "signing": {"keys": keys}}}


def jwt(**fields: Any) -> dict[str, Any]:
    valid = {"issuer": "https://x", "audiences": ["a"]}
    return {"overrides": {"http_auth": "none", "http_jwt": valid | fields}}


EXTENSIONS: Final = "sasl_oauthbearer_extensions"


@pytest.mark.parametrize(
    ("sources", "line"),
    [
        ({"environ": {"SPARKLAG_SIGNING_KEY": "hunter2"}}, "length >= 16"),
        (
            {"overrides": {"signing_key": KEY, "accepted_signing_keys": [KEY, "hunter2"]}},
            "length >= 16",
        ),
        ({"environ": {"SPARKLAG_ACCEPTED_SIGNING_KEYS": KEY}}, "needs signing_key"),
        ({"overrides": {"signing": {"keys": {"a": TEAM}}}}, "signing.keys needs signing_key"),
        ({"overrides": {"kafka": {EXTENSIONS: {"a-b": "c"}}}}, EXTENSIONS),
        (teams(a=TEAM | {"key": "hunter2"}), "a.key = '***': Expected `str` of length >= 16"),
        (teams(a=TEAM | {"accepted": ["hunter2"]}), "a.accepted = '***': Expected"),
        (teams(a={"key": "a" * 16}), "signing.keys.a: Object missing required field `queries`"),
        (teams(a=TEAM | {"queries": []}), "a.queries: Expected `array` of length >= 1"),
        (teams(a=TEAM | {"queries": ["("]}), "regular expression of queries (signing.keys.a)"),
        (teams(a=TEAM, **{"b\n": TEAM}), r"signing.keys.b\n has a key of others"),
        (teams(a=TEAM | {"accepted": [KEY]}), "signing.keys.a has a key of others"),
        (jwt(audiences=[]), "needs http_jwt.audiences"),
        (jwt(issuer="http://10.0.0.1/"), "http_jwt.issuer"),
        (jwt(issuer="http://localhost:1@x/"), "http_jwt.issuer"),
        (jwt(grants={"g": {"scopes": []}}), "http_jwt.grants.scopes: Expected `array` of length"),
        (jwt(grants={"g": {"scopes": ["lag"], "queries": ["("]}}), "regular expression of queries"),
        (jwt(), "leave out one of them"),
        (
            {"environ": {"SPARKLAG_HTTP_HOSTS": '["a.example.org", ""]'}},
            "http_hosts has an item that is empty",
        ),
        (
            {"overrides": {"kafka": {"trusted_brokers": ["a", " "]}}},
            "arguments: kafka.trusted_brokers[1] is empty",
        ),
        ({"overrides": {"checkpoints": {"storage": {"s3": {"secret": ""}}}}}, "s3.secret is empty"),
        ({"environ": {"SPARKLAG_REGISTRY__USERNAME": "me"}}, "need each other"),
        ({"environ": {"SPARKLAG_REGISTRY__PASSWORD": "hunter2"}}, "need each other"),
        ({"environ": {"SPARKLAG_SECRETS_DIR": ""}}, "SPARKLAG_SECRETS_DIR is empty"),
        ({"environ": {"SPARKLAG_SECRETS_DIR": "none"}}, "secret file none cannot be read: No such"),
        ({"environ": {"SPARKLAG_CONFIG": " "}}, "SPARKLAG_CONFIG is empty"),
    ],
)
def test_incomplete_security_settings_are_refused(sources: dict[str, Any], line: str) -> None:
    assert line in refusal(**sources)


def test_the_key_of_a_team_comes_from_a_file_that_is_named_like_the_team(tmp_path: Path) -> None:
    (tmp_path / "sparklag.toml").write_text('signing.keys.team-a.queries = ["team-a-.*"]')
    (tmp_path / "SPARKLAG_SIGNING_KEY").write_text(KEY)
    (tmp_path / "SPARKLAG_SIGNING__KEYS__TEAM-A__KEY").write_text("a" * 16)
    (tmp_path / "SPARKLAG_SIGNING__KEYS__TEAM-A__ACCEPTED").write_text("b" * 16)
    environ = {"SPARKLAG_SECRETS_DIR": str(tmp_path)}
    settings = load_settings(environ=environ, config=tmp_path / "sparklag.toml")
    team = TeamKey(key="a" * 16, accepted=["b" * 16], queries=["team-a-.*"])
    assert settings.signing.keys == {"team-a": team}


def test_a_secret_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "SPARKLAG_SIGNING_KEY"
    environ = {"SPARKLAG_SECRETS_DIR": str(tmp_path)}
    # Docker makes a folder if the file to mount is missing.
    file.mkdir()
    assert refusal(environ=environ) == f"secret file {file} cannot be read: Is a directory"
    file.rmdir()
    file.write_bytes(b"\xffhunter2")
    assert refusal(environ=environ) == f"secret file {file} cannot be read: it is not UTF-8"


def test_no_secret_of_any_setting_is_shown() -> None:
    secured = {
        "security_protocol": "SASL_SSL",
        "sasl_username": "me-too",
        "sasl_password": "hunter2",
        "ssl_key_password": "hunter2",
    }
    result = load_settings(
        environ={},
        overrides={
            "bootstrap_servers": "kafka:9092,kafka-2:9092",
            "kafka": secured,
            "registry": {"url": "https://registry:8081", "username": "me", "password": "hunter2"},
            "checkpoints": {
                "locations": ["webhdfs://me:hunter2@namenode/cp", "s3://bucket/cp?sig=hunter2"],
                "follow": ["webhdfs://me:hunter2@namenode/"],
                "storage": {"s3": {"secret": "hunter2"}},
            },
            "clusters": {
                "east": {
                    "bootstrap_servers": "east:9092",
                    "kafka": secured,
                    "checkpoints": ["webhdfs://me:hunter2@namenode/east"],
                }
            },
            "store": {"url": "postgresql://me:hunter2@db/offsets?sslpassword=hunter2"},
            "otlp": {"endpoint": "https://me:hunter2@collector/v1/metrics?key=hunter2"},
            "signing_key": "hunter2" * 5,
            "accepted_signing_keys": ["hunter2" * 5],
            "signing": {
                "keys": {"a": {"key": "hunter2" * 6, "accepted": ["hunter2" * 7], "queries": ["a"]}}
            },
        },
    )
    shown = repr(result)
    assert "hunter2" not in shown + str(result.kafka)
    assert "me-too" in repr(result.clusters)
    for part in ("kafka-2:9092", "namenode/cp", "s3://bucket/cp", "@db/offsets", "@collector/v1"):
        assert part in shown


@pytest.mark.parametrize(
    "url", ["http://sparklag:8085", "https://lag.example.org/team-a/", "http://[::1]:8085"]
)
def test_the_address_of_a_service_may_have_a_path(url: str) -> None:
    assert load_settings(environ={"SPARKLAG_SERVICE_URL": url}).service_url == url


@pytest.mark.parametrize(
    "url",
    [
        "sparklag:8085",
        "ftp://sparklag",
        "http://",
        "http://h:99999",
        "http://h:0",
        "http://h/a b",
        "http://h/\r\nX-Y: z",
        "http://me:hunter2@sparklag:8085",
        "http://sparklag:hunter2",
        "http://sparklag/?token=hunter2",
    ],
)
def test_the_error_for_an_invalid_service_url_is_one_line_without_secrets(url: str) -> None:
    line = refusal(environ={"SPARKLAG_SERVICE_URL": url})
    assert "service_url = " in line
    assert ": takes http(s)://" in line
    assert line.isprintable()
