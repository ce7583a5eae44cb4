"""Secrets that others wrote into texts and locations do not leave the driver, nor the service."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklag_schemas.messages.lag_event import PartitionLag, TopicLag
from sparklag_schemas.messages.validation import redacted
from sparklag_schemas.text.locations import redact_location
from sparklag_schemas.text.redaction import exception_line, redact
from tests.messages import lag_event, observation

ODD = "S3CR,ET; x y"
PLAIN = "hunter2Secr3t"
RANDOM = "aB3dE6gH9jK2mN5pQ8sT1v"
PARTS = ("S3CR", "ET; x", "hunter2", RANDOM)

FORMS = r"""
PlainLoginModule required username="u" password="<ODD>";
PlainLoginModule required username='u' password='<ODD>';
kafka.ssl.keystore.password=<ODD>, other=1
[kafka.ssl.key.password -> <ODD>, subscribe -> orders]
{'ssl.truststore.password': '<ODD>'}
{"client_secret": "<ODD>"}
fs.s3a.secret.key=<ODD>
fs.s3a.access.key = <ODD>
fs.s3a.session.token=<ODD>
PASSWORD: <ODD>
s3a://AKIA:<PLAIN>@bucket/checkpoint
jdbc:postgresql://user:<PLAIN>@host/db
jdbc:sqlserver://host;user=sa;password=<ODD>;encrypt=true
jdbc:mysql://host/db?user=a&password=<PLAIN>
jdbc:snowflake://x.com/?privateKey=<PLAIN>
Authorization: Bearer <PLAIN>
Authorization: Basic dXNlcjpodW50ZXIy<PLAIN>
headers={'Authorization': 'Bearer <PLAIN>', 'X': '1'}
curl -H "X-Api-Key: <PLAIN>" https://x
-H 'x-api-key: <PLAIN>'
api_key=<PLAIN>
apikey: <PLAIN>
DefaultEndpointsProtocol=https;AccountName=a;AccountKey=<PLAIN>==;EndpointSuffix=core.windows.net
Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=<PLAIN>=
https://a.blob.core.windows.net/c?sv=2020&sig=<PLAIN>%3D
wasbs://c@a.blob.core.windows.net/x?sig=<PLAIN>
abfss://c@a.dfs.core.windows.net/x#<PLAIN>
fs.azure.account.key.acc.dfs.core.windows.net=<PLAIN>
fs.azure.sas.c.acc.blob.core.windows.net <RANDOM>
redis://:<PLAIN>@localhost:6379/0
mongodb+srv://u:<PLAIN>@host/db
amqp://u:<PLAIN>@h
Server=h;Database=d;Uid=u;Pwd=<ODD>;
pwd=<ODD>
mysql -u root -p<PLAIN>
using key <PLAIN>
pw: <ODD>
--password <PLAIN>
--token=<PLAIN>
mysql -p <PLAIN>
spark.hadoop.fs.s3a.secret.key -> <ODD>
<password><ODD></password>
<property><name>fs.s3a.secret.key</name><value><RANDOM></value></property>
password: "<ODD>"
password => '<ODD>'
db_password = "<ODD>" # comment
export AWS_SECRET_ACCESS_KEY=<PLAIN>
AWS_SESSION_TOKEN=<PLAIN>
aws_secret_access_key = <PLAIN>
-----BEGIN PRIVATE KEY-----\nMIIE<PLAIN>\n-----END PRIVATE KEY-----
-----BEGIN RSA PRIVATE KEY-----\nMIIE<PLAIN>
sasl.jaas.config=org.apache.kafka.PlainLoginModule required username=u password=<ODD>;
ssl.key.password = Some(<ODD>)
token is <PLAIN>
Set-Cookie: session=<PLAIN>
Cookie: sid=<PLAIN>
dapi0123456789abcdef0123<RANDOM>
invalid credentials: <ODD>
secret: [<ODD>]
{"password":"<ODD>","user":"x"}
{\"password\": \"<ODD>\"}
password='<ODD>'
Caused by: bad password (<ODD>)
webhook https://hooks.slack.com/services/T000/B000/<RANDOM>
ghp_<RANDOM>
key <RANDOM> not accepted
AuthenticationError: Incorrect API key provided: sk-<RANDOM>
passphrase for key: <ODD>
SNOWFLAKE_PASSWORD=<ODD>
spark.databricks.token <RANDOM>
oauth2 client_secret=<ODD>&grant_type=x
k8s: data: {password: <PLAIN>}
user:<PLAIN>@host:5432
jdbc:oracle:thin:scott/<PLAIN>@//db:1521/ORCL
basic.auth.user.info=user:<PLAIN>
(spark.hadoop.fs.s3a.secret.key,<PLAIN>)
[('fs.s3a.secret.key', '<PLAIN>'), ('spark.app.name', 'x')]
{"name": "password", "value": "<PLAIN>"}
{'key': 'fs.s3a.secret.key', 'value': '<PLAIN>'}
<add key="password" value="<PLAIN>"/>
<property><name>password</name><value><PLAIN></value></property>
name: DB_PASSWORD\n  value: <PLAIN>
password: |\n  <PLAIN>
password = '''<PLAIN>'''
password%3D<PLAIN>
%22password%22%3A%22<PLAIN>%22
https%3A%2F%2Fu%3A<PLAIN>%40h
password&quot;:&quot;<PLAIN>&quot;
&lt;password&gt;<PLAIN>&lt;/password&gt;
Authorization: Digest username="u", response="<PLAIN>"
curl -u user:<PLAIN> https://h
redis-cli -a <PLAIN> ping
ERR invalid AUTH <PLAIN>
password '<PLAIN>' is too short
Login failed with password <PLAIN>
the password was <PLAIN>
option 'password' has value '<PLAIN>'
invalid token <PLAIN>
secret <PLAIN> expired
HTTPBasicAuth('u', '<PLAIN>')
UsernamePasswordCredential(u, <PLAIN>)
//u:<PLAIN>@h/db
hmac=<PLAIN>
passcode: <PLAIN>
-Dpw=<PLAIN>
https://h/app;jsessionid=<PLAIN>/x
invalid_grant: code=<PLAIN>&state=x
401 for HTTP Basic: u:<PLAIN>
localhost:5432:*:postgres:<PLAIN>
ERR AUTH alice <PLAIN>
ACL SETUSER alice on ><PLAIN> +@all
CREATE USER bob IDENTIFIED WITH x BY '<PLAIN>'
bindpw <PLAIN>
mot de passe : <PLAIN>
Das Kennwort <PLAIN> ist falsch
La contraseña es <PLAIN>
неверный пароль <PLAIN>
密码是<PLAIN>
パスワード「<PLAIN>」
API key <PLAIN> is not valid
password of alice is <PLAIN>
option("password", "<ODD>")
password = “<PLAIN>”
password&#61;<PLAIN>
pass%77ord%253D<PLAIN>
unknown_name=<PLAIN>
unexpected <PLAIN>
Passwords do not match: <PLAIN> vs <PLAIN>
password not valid. Given: <PLAIN>
{"secrets": ["<PLAIN>", "<PLAIN>"]}
the token of user alice, which is <PLAIN>, has expired
<name>x.ConnectionPassword</name><value><PLAIN></value>
""".strip().splitlines()


def planted(form: str) -> str:
    return (
        form.replace("<ODD>", ODD)
        .replace("<PLAIN>", PLAIN)
        .replace("<RANDOM>", RANDOM)
        .replace("\\n", "\n")
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_taken_out_in_whatever_form_it_is_written(form: str) -> None:
    text = planted(form)
    assert any(part in text for part in PARTS)
    for result in (redact(text), redact(f"Caused by: java.io.IOException: {text} (see the log)")):
        assert [part for part in PARTS if part in result] == []
    line = exception_line(f"java.io.IOException: {text}\n\tat a.b.C(D.java:1)", "redacted")
    assert [part for part in PARTS if part in (line or "")] == []
    assert (line or "").startswith("java.io.IOException: ")


@pytest.mark.parametrize(
    "text",
    [
        "file:/checkpoints/orders",
        "s3a://bucket/checkpoints/orders",
        "hdfs://namenode:8020/checkpoints/user@example",
        "/mnt/Data1/checkpointsV2/orders_2026-11-23/offsets/123",
        "java.lang.IllegalStateException: Partition orders-0's offset was changed from 5 to 3",
        "Caused by: org.apache.kafka.common.KafkaException: Failed to create new NetworkClient",
        "Query [id = 60ade637-a0e5-4a62-baa7-891ad23a0c44] terminated with exception: Job aborted",
        "OffsetOutOfRangeException: FetchPosition{offset=5, leader=h:9092 (id: 1)} is out of range",
        "java.net.ConnectException: namenode:8020 failed on: Connection refused",
        "GroupAuthorizationException: Not authorized to access group: spark-kafka-source-1",
        "SaslAuthenticationException: Authentication failed during authentication due to invalid"
        " credentials with SASL mechanism SCRAM-SHA-512",
        'Permission denied: user=root, access=WRITE, inode="/cp":hdfs:supergroup:drwxr-xr-x',
        "AnalysisException: cannot resolve 'token' given input columns: [id, name]; line 1 pos 7;",
        "Unable to load AWS credentials (AWS_ACCESS_KEY_ID (or AWS_ACCESS_KEY))",
        "signing_key is not set, and SPARKLAG_KAFKA__SASL_PASSWORD is empty: set sasl_password",
        "the query also reads consumer-lag-3b2a7e6a, a topic of sparklag's own",
    ],
)
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password is hunter2 for user x", "password is ***"),
        ("password: 12;00;user/x at host", "password: ***"),
        (
            "Invalid value correct-horse for configuration ssl.key.password: bad",
            "Invalid value ***",
        ),
        ("the value 'abc def' is not a valid token", "the value ***"),
        ("hunter is no valid password", "***"),
        ("it is no valid password", "it is no valid password"),
        ("wrong password;pin;hunter2 at host", "wrong password ***"),
        (
            "invalid credentials, 3 attempts (of 5) left: x1",
            "invalid credentials, 3 attempts (of 5) left: ***",
        ),
        ('password failed for user "postgres"', "password failed for user ***"),
        ("invalid credentials. Retried 5 times on node-1", "invalid credentials ***"),
        ("Unrecognized token 'abc': was expecting JSON", "Unrecognized token ***"),
        ("batch 5 failed: flavour=hunter2Secr3t in task 3", "batch 5 failed: flavour=***"),
        ("GET https://h/x?sig=hunter2 failed with 403", "GET https://h/x?***"),
    ],
)
def test_nothing_is_shown_after_the_first_word_that_may_be_a_secret(text: str, shown: str) -> None:
    assert redact(text) == shown


@given(
    st.sampled_from(
        ["password", "ssl.key.password", "api_key", "Pwd", "AccountKey", "client-secret", "token"]
    ),
    st.sampled_from(["=", ": ", " -> ", " => ", " = ", '="', "='", '": "', "' : '"]),
    # What looks like a name and its value ends a value without quotes. By the character: of texts
    # Hypothesis also takes those of the code, whose words are words of errors.
    st.lists(
        st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'\\=:>"),
        min_size=8,
    ).map("".join),
)
def test_the_redacted_text_does_not_depend_on_the_secret(name: str, to: str, secret: str) -> None:
    quote = to[-1] if to[-1] in "\"'" else ""

    def left(value: str) -> str:
        return redact(f"failed with {name}{to}{value}{quote} at host")

    assert left(secret) == left("x" * 8)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/checkpoints/orders?x", "/checkpoints/orders?x"),
        ("s3a://AKIA:hunter2@bucket/orders", "s3a://bucket/orders"),
        ("https://a.blob.core.windows.net/c?sv=1&sig=hunter2", "https://a.blob.core.windows.net/c"),
        ("abfss://container@account.net/x?sig=hunter2", "abfss://container@account.net/x"),
        ("wasbs://container:hunter2@account.net/x", "wasbs://container@account.net/x"),
        ("s3://bucket/x#hunter2", "s3://bucket/x"),
        ("webhdfs://me:hun@ter2@nn:9870/cp?token=hunter2", "webhdfs://nn:9870/cp"),
        ("/data/a:b@c?d", "/data/a:b@c?d"),
        ("s3a:/AKIA:hunter2@bucket/orders", "s3a:/bucket/orders"),
        ("s3a://AKIA%3Ahunt/er2%40bucket/orders", "s3a://bucket/orders"),
        ("abfss://container:hunt/er2==@account.net/x", "abfss://container@account.net/x"),
        ("hdfs://nn:8020/cp;password=hunter2", "hdfs://nn:8020/cp"),
        ("s3a://b/cp/token=hunter2/ghp_16C7e42F292c6912E771", "s3a://b/cp/token=***/***"),
        ("/scratch/temporary-60ade637-a0e5-4a62-baa7-891ad23a0c44/tmpx3f9k2q1",) * 2,
        ("s3a://AKIA:" + "x" * 1_200 + "@bucket", "***"),
        (
            "hdfs://namenode:8020/checkpoints/user@example",
            "hdfs://namenode:8020/checkpoints/user@example",
        ),
    ],
)
def test_a_location_has_no_user_and_no_query(location: str, shown: str) -> None:
    assert redact_location(location) == shown


def test_the_settings_choose_the_published_part_of_an_exception() -> None:
    text = "a.b.StreamingQueryException: failed with password=hunter2\nCaused by: secret"
    assert exception_line(text, "none") is None
    assert exception_line(text, "type") == "a.b.StreamingQueryException"
    assert (
        exception_line(text, "redacted") == "a.b.StreamingQueryException: failed with password=***"
    )
    assert len(exception_line("x" * 1_000_000, "redacted") or "") <= 300
    assert exception_line("", "redacted") == ""
    python = (
        "py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback"
        ' (most recent call last):\n  File "job.py", line 3, in each\n    1 / 0\n'
        "app.errors.Refused: token=hunter2 is refused\n\n\tat py4j.Protocol.getReturnValue"
    )
    assert exception_line(python, "redacted") == "app.errors.Refused: token=***"
    assert exception_line(python, "type") == "app.errors.Refused"
    call = "py4j.protocol.Py4JJavaError: An error occurred while calling o162.save.\n: app."
    assert (
        exception_line(python.replace("app.", call), "redacted") == "app.errors.Refused: token=***"
    )
    assert exception_line("???", "type") == "exception"


def test_messages_of_others_are_redacted_again() -> None:
    fields = {
        "exception": "IOException: password=hunter2",
        "checkpoint_location": "https://x/y?sig=hunter2",
    }
    messages = (observation(**fields), lag_event(**fields, reason="why: Bearer hunter2"))
    for message in messages:
        safe = redacted(message)
        assert b"hunter2" not in msgspec.json.encode(safe)
        assert safe.exception == "IOException: password=***"
        assert redacted(safe) is safe
    clean = observation()
    assert redacted(clean) is clean


def test_reasons_of_partitions_are_redacted_and_no_number_of_them_is_lost() -> None:
    reasons = [None, "lost 12345678901234567890 records", "it is at 12, pin=1234", "Bearer hunter2"]
    partitions = [PartitionLag(partition=n, reason=reason) for n, reason in enumerate(reasons)]
    topic = TopicLag(topic="orders", source=0, partitions=partitions)
    event = lag_event(topics=[topic, topic], catch_up_reason="password=hunter2")
    safe = redacted(event)
    assert safe.catch_up_reason == "password=***"
    for one in safe.topics:
        assert [each.reason for each in one.partitions] == [
            *reasons[:2],
            "it is at 12, pin=***",
            "Bearer ***",
        ]
    assert redacted(safe) is safe
    assert redacted(lag_event(topics=[topic, topic])).topics == safe.topics


@pytest.mark.parametrize(
    "secret", ["http://bob:hunter2@host", "bob:hunter2@host", 'response="hunter2"', "token=hunter2"]
)
def test_a_long_text_is_not_cut_within_a_secret(secret: str) -> None:
    for before in range(1_001 - len(secret), 1_000):
        text = redact(("word " * 200)[: before - 1] + f" {secret} and more")
        assert "hun" not in text
        assert text.startswith("word word")
    assert redact("http://bob:" + "hunter2" * 200 + "@host") == "***"


def test_few_of_many_distinct_reasons_of_partitions_are_shown() -> None:
    # Each takes milliseconds at worst, and a message may have thousands.
    numbered = [f"lost {n} records" for n in range(1_000)]
    distinct = [f"{n}a.b://" * 90 for n in range(1_000)]
    secret = [f"{n} token=hunter2" for n in range(1_000)]
    for reasons, expected in ((numbered, 1_000), (distinct, 50), (secret, 50)):
        partitions = [PartitionLag(partition=n, reason=reason) for n, reason in enumerate(reasons)]
        event = lag_event(topics=[TopicLag(topic="orders", source=0, partitions=partitions)])
        safe = redacted(event)
        assert b"hunter2" not in msgspec.json.encode(safe)
        shown = [one.reason for one in safe.topics[0].partitions]
        assert len(reasons) - shown.count("***") == expected
