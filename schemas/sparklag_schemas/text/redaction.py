"""Takes secrets out of foreign texts, such as exceptions. Pure.

A text is cut at the first word that may be a secret. After the name of a secret, every word that is
not on a list may be one: the lost end of an error costs less than a leak. Each step reads a text
once: no pattern reads to the end from each position.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from html import unescape
from typing import Final, Literal
from urllib.parse import unquote

from sparklag_schemas.text.printable import printable

HIDDEN: Final = "***"
_MAX_TEXT: Final = 1_000
"""Characters of a text; the rest is dropped."""
_FIRST_LINE: Final = 300
_RANDOM: Final = 0.35
"""Changes between capitals, small letters and digits for each character. In words, paths and names
of classes it is below 0.3; in random text 0.45 or more."""

_CJK: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
_WORD: Final = re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+(?:[.\-$][^\W{_CJK}]+)*")
_PARTS: Final = re.compile(r"\d+|[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+")
_KNOWN: Final = re.compile(
    r"\d\d?|(?:\w+[.$])*[A-Z]\w*(?:Exception|Error|Provider|Manager|Module)[\w$]*", re.ASCII
)
_VALUE_BEFORE: Final = re.compile(
    r"(?:\bvalue[\s:=]{1,3}(?P<value>[^\n]{1,200}?)|[\"'`\[(](?P<quoted>[^\"'`\])\n]{1,200})[\"'`\])]"
    r"|(?P<word>(?<!\S)\S{1,200})(?=\sis))"
    r"\s(?:for|as|of|is(?: not| no)?(?: an?| the)? (?:in)?(?:valid|correct))"
    r"(?:\s(?:the|your))?(?:\s\w{1,20})?\s[\"'`\[(]?$"
)
"""A possible value before the name of its secret."""
_COUNT: Final = re.compile(r"(?<![^\s(\[])\d\d?(?=[.,:;)\]]{0,3}(?:\s|$))", re.ASCII)
"""A number by itself. Joined to other characters it may be the beginning of a value."""
_ONE_WORD: Final = re.compile(r"[\"'`(\[{]{0,3}\w+[\"'`)\]}.,;:!]{0,3}(?:\s|$)")
_NOTHING: Final = re.compile(r"(?:null|none|true|false)?", re.IGNORECASE)
_SEPARATOR: Final = re.compile(
    r"[^\w\n]{0,8}?(=>|->|:?={1,3}(?!(?<=[^\s=]=)\s)|:(?=[\s\"']))[^\S\n]*"
)
_VALUE_END: Final = re.compile(r"[\s\"',;&)\]}=]")
_GAP: Final = re.compile(r"[\s\"'`()\[\]{},.;:/*@%#-]{0,6}")
"""Characters between the words of a sentence about secrets."""
_HARMLESS: Final = re.compile(
    r"[-+]?\d{1,19}(?:[.:\-T]\d{1,9}){0,7}[a-zA-Z%]{0,3}|[A-Z][A-Za-z_]*(?:[\[{(].*)?|[\[{(<].*"
    r"|[A-Z_]+(?:-[A-Z_]+)*(?:-?\d{1,3})?|[\w.\-]+:\d{1,5}|[\w+]{2,9}:/.*|/.*|\W*|[a-z]{1,3}"
    r"|[A-Za-z]{1,5}\d|[a-z]+(?:_[a-z]+)+|(?:[a-z_]\w*\.)+[\w$]+|[a-z_]+(?:[/-][a-z_]+)*[/-]\d{1,5}"
)
_HARMLESS_CODE: Final = re.compile(r"\d{1,4}|[A-Z][a-z]+|[A-Z_]+|[0-9A-Z]{5}|\W*|[a-z]{1,3}")
ODD: Final = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z]).{5}|\w+[!^~&]\w", re.DOTALL)
_SECRET_FOLLOWS: Final = re.compile(
    r"-----BEGIN|(?<!\S)(?:-(?:[uapPw]|pw)|--user)(?=[\s=]+\S)|(?<!\S)-p(?=\S)"
    r"|:(?:\d{2,5}|\*):[^:\s]{1,60}:[^:\s]{1,60}:(?=\S)"
    # The query of a URL.
    r"|\b[A-Za-z][\w+.\-]{0,30}:[/\\][^\s\"'<>?#;]*[?#;](?=[^\s\"'<>])"
)
KNOWN_TOKENS: Final = re.compile(
    r"\b(?:A[KS]IA[A-Z0-9]{12,}|eyJ[\w\-=.]+|gh[pousr]_\w+|github_pat_\w+|glpat-[\w\-]+"
    r"|(?:xox[a-z]|xapp|(?:TGT|ST)-\d{1,9})-[\w\-]+|sk-[\w\-]{16,}|[srp]k_(?:live|test)_\w+"
    r"|AIza[\w\-]{20,}|ya29\.[\w\-]+|dapi[0-9a-f]{16,}(?:-\d)?|SG\.[\w\-.]{20,}|hvs\.[\w\-]+"
    r"|npm_\w{20,}|hf_\w{20,}|hooks\.[\w.]{1,60}/\S+|bot\d{5,20}:[\w\-]+)"
)
_ALTERNATING: Final = re.compile(r"[A-Za-z0-9!^~]{6,}")
_HEXADECIMAL: Final = re.compile(r"(?:0x)?[0-9a-f]{1,20}|utf8mb4")
_TOKEN: Final = re.compile(r"[A-Za-z0-9+/=_\-]{20,}")
# Py4J's own line names only the call that failed: the exception of the JVM is in the next.
_PYTHON: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(?:py4j\.\S+JavaError: .*\n: )?(\S)"
)
_ID: Final = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![A-Za-z0-9])[0-9a-f]{7,10}(?![A-Za-z0-9])",
    re.IGNORECASE,
)
"""A UUID, or the short hash that ends many names."""
_ESCAPED: Final = re.compile(r"\\(?:u00|x)([0-7][0-9a-fA-F])")
_PLAIN: Final = str.maketrans(
    "“”„«»「」『』\u2018\u2019\u201a\u2039\u203a",
    '"' * 9 + "'" * 5,
    "\u200b\u200c\u200d\u00ad\u2060\ufeff",
)

_BARE_USER: Final = re.compile(r"(?<![^\s\"'<>])[^\s\"'<>:/]*(?::(?!/)|(?<=\w)/(?!/))[^\s\"'<>]*@")
_PART: Final = re.compile(r"[^\s\"'<>]+")
_URL_IN_TEXT: Final = re.compile(
    r"(?<![\w+.\-])(?:(?:[A-Za-z][\w+.\-]{0,30}:)+[/\\]{1,3}|[/\\]{2,3})(?=[^/\\])", re.ASCII
)
_LAST_AT: Final = re.compile(r".*(?:[@\uff20]|%(?:25){0,3}40)", re.DOTALL)
COLON: Final = re.compile(r"(?:[:\uff1a]|%(?:25){0,3}3A)(?!\d{1,5}(?:[/\\?#;]|$))", re.IGNORECASE)
_ANY_COLON: Final = re.compile(r"[:\uff1a]|%(?:25){0,3}3A", re.IGNORECASE)
_NO_PORTS: Final = re.compile(r"(?:s3[an]?|gs|oss|obs|cosn|abfss?|wasbs?):", re.IGNORECASE)
_CONTAINER_FIRST: Final = re.compile(r"(?:abfs|wasb)s?:", re.IGNORECASE)
"""Azure's schemes: the text before `@` is a container, no user."""

_SECRET_PART: Final = re.compile(
    r"passw|passphrase|passcode|pswd|psswd|pword|secret|token(?!i[sz])|credential|cookie|jaasconf"
    r"|keydata|sharedaccess|signature|authori[sz]ation|basicauth|userinfo|conn(?:ection)?str"
    r"|webhook|(?:client|saml)assertion|sess(?:ion)?id|csrf|bindpw|verifier|authcode"
    r"|(?:ssh|store|key)pass|passin|passout|motdepasse|mot.?passe|zugang|kennwort|contrase"
    r"|wachtwoord|senha|l[öo]senord|salasana|jelsz|kodeord|passord|adgangsk|chave|parool|slapta"
    r"|khẩu|geheim|segret|sleutel|jeton|identifiant|парол|лозинк|секрет|токен|ключ|κωδικ|סיסמ"
    r"|المرور|密[码碼钥鑰]|口令|令牌|验证码|パスワード|トークン|暗証|秘密|비밀|암호"
    r"|(?:private|api|access|account|shared|client|signing|encrypt\w{0,4}|master|license|auth|ssh"
    r"|storage|service|deploy|function|keystore|licence|activation|recovery|product|unlock)key"
    r"|(?:access|unlock|verification|time|login|2fa|secret|security|confirmation"
    r"|authorization)code"
)
"""A part of the name of a secret, without separators."""
_KINDS: Final = {
    word: kind
    for kind, words in {
        "secret": "pwd pw psw pass passe pin otp totp psk cred creds auth sig sas pat dsn hmac"
        " salt nonce bearer setuser password token secret credential cookie passphrase signature"
        " authorization basic digest negotiate ntlm identified requirepass masterauth clave parola"
        " haslo hasło heslo geslo lozinka şifre sifre mdp sandi sid parole laluan cvv",
        "unsure": "assertion clé code key keytab schlüssel session state ticket",
        "named": "access acks actual address algorithm app application assign attempt batch broker"
        " bucket byte catalog cause charset class client column constraint container count"
        " database date deserializer detail dir directory driver duration encoding end endpoint"
        " epoch error executor expected file folder format group host hostname id index inode"
        " instance interval isr job lag leader length level limit line location mechanism message"
        " method mode name node offset owner partition path port pos principal protocol query rack"
        " realm reason record region relation replicas retries row run schema serializer server"
        " service sink size source sqlstate stage start status subscribe table task time timeout"
        " timestamp topic type uri url user username version zone",
        "prose": "256 512 a about add after again all already also an and another any are argument"
        " at authenticated authentication authorized aws bad be because before between both bound"
        " but by can cannot character close cluster config configuration could default delegation"
        " denied did different do does down each earliest either empty encoded environment exist"
        " expect expired expires expiry fail failed failure false field find first for found from"
        " given gssapi had handle has have hdfs here http if in included incorrect input into"
        " invalid is issued it kafka kept kerberos keys latest least left load logged login logon"
        " long lost manager many may mismatch missing most must neither new no none not null"
        " oauthbearer obtain of off old only option or other out over parameter per percent policy"
        " private property provided provider refresh refused rejected request required resolve"
        " same sasl scram security see sent set setting sha shall short should since some sparklag"
        " special ssl still store tgt than that the then there these this through timed tls to too"
        " true trusted try under unknown unset until up use used using valid values variables was"
        " weak web were when where while will with within without would wrong yes yet",
    }.items()
    for word in words.split()
}
"""The kinds of words. `named`: errors show its value. Each may follow the name of a secret."""

PublishExceptions = Literal["redacted", "type", "none"]


def redact(text: str) -> str:
    """The first 1,000 characters of `text`, without what may be a secret in it."""
    if len(text) > _MAX_TEXT:
        # Half of a word may be half of a secret, without the `@` that would mark it.
        words = text[:_MAX_TEXT].rsplit(maxsplit=1)
        text = f"{words[0]} {HIDDEN}" if len(words) > 1 else HIDDEN
    return _redact(text)


@lru_cache(1_024)
def _redact(text: str) -> str:
    shown = _hide(text)
    plain = _decoded(shown)[:_MAX_TEXT]
    hidden = _hide(plain) if plain != shown else plain
    # Encoded text is shown as it is where nothing is hidden in it.
    return shown if hidden == plain else hidden


def _decoded(text: str) -> str:
    """The text without three layers of escapes, with plain separators and quotes."""
    for _ in range(3):
        text = unescape(unquote(_ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)))
        text = re.sub(r"\\{1,9}([\"'])", r"\1", text)
    return unicodedata.normalize("NFKC", text).translate(_PLAIN)


def _hide(text: str) -> str:
    text = _PART.sub(_without_user, text)
    if (secret := _SECRET_FOLLOWS.search(text)) is not None:
        text = _cut(text, secret.end())
    text = _BARE_USER.sub(f"{HIDDEN}@", _cut(text, _end_of_harmless(text)))
    text = _ALTERNATING.sub(_without_alternating, KNOWN_TOKENS.sub(HIDDEN, text))
    return hide_random(text)


def _cut(text: str, end: int) -> str:
    """`text` up to `end`, with a mark if something followed."""
    if not text[end:].strip():
        return text
    space = " " if end and (text[end - 1].isalnum() or text[end].isspace()) else ""
    return f"{text[:end]}{space}{HIDDEN}"


def _without_user(part: re.Match[str]) -> str:
    text = part[0]
    if (url := _URL_IN_TEXT.search(text)) is None:
        return text
    return text[: url.end()] + after_user(url[0], text[url.end() :], f"{HIDDEN}@")


def _end_of_harmless(text: str) -> int:
    """The position at which a possible secret begins.

    After the name of a secret, only a sentence about secrets is assumed to hold none.
    """
    is_strict = is_unsure = False
    end, before = 0, ""
    # What follows the last space, separator or name of a secret is one value.
    value_start = 0
    for word in _WORD.finditer(text):
        name, kind = word[0], kind_of(word[0])
        gap = text[end : word.start()]
        if not _is_joined(gap):
            value_start = end
        if is_strict and not _is_about_secrets(word, kind, gap):
            return value_start
        if is_unsure and kind not in ("named", "prose"):
            if _is_odd(_value(text, word.start())):
                return end
            is_unsure = False
        if kind == "unsure" and _SECRET_PART.search(f"{before}{name}".lower()):
            kind = "secret"
        end, before = word.end(), name
        if kind == "secret":
            if not is_strict and (start := _value_before(text, word.start())) is not None:
                return start
            value_start = value_start if is_strict and _is_joined(gap) else end
            is_strict = True
        if (separator := _SEPARATOR.match(text, end)) is None:
            is_unsure = is_unsure or (kind == "unsure" and text[end : end + 1].isspace())
            continue
        end = value_start = separator.end()
        value, is_colon = _value(text, end), separator[1] == ":"
        is_nothing = _NOTHING.fullmatch(value) and (value or not text[end : end + 1].strip())
        if is_strict and not (is_nothing or (is_colon and _ONE_WORD.match(text, end))):
            return end
        if not (is_strict or kind == "named" or _is_harmless(value, kind, is_colon)):
            return end
    if is_strict and not _GAP.fullmatch(text, end):
        return value_start if _is_joined(text[end:]) else end
    return len(text)


def _value_before(text: str, name_start: int) -> int | None:
    """The position of a secret's value, if it precedes the secret's name at `name_start`."""
    first = max(0, name_start - 300)
    match = _VALUE_BEFORE.search(text[first:name_start])
    if match is None or match.lastgroup is None:
        return None
    words = _WORD.findall(match[match.lastgroup])
    if words and all(kind_of(word) in ("named", "prose") for word in words):
        return None
    return first + match.start(match.lastgroup)


def _value(text: str, start: int) -> str:
    """The first word of the value that begins at `start`."""
    return _VALUE_END.split(text[start : start + 100].lstrip("\"'"), 1)[0].rstrip(":.")


def _is_joined(gap: str) -> bool:
    """True: the words around `gap`, or the rest of a text and the word before, may be one value."""
    return not gap[:1].isspace() and not (_GAP.fullmatch(gap) and re.search(r"\s", gap))


def _is_about_secrets(word: re.Match[str], kind: str, gap: str) -> bool:
    """True: this word, after the name of a secret, is not its value."""
    name = word[0]
    if name.isdecimal():
        is_known = _COUNT.match(word.string, word.start()) is not None
    else:
        is_known = _KNOWN.fullmatch(name) is not None
        is_known = is_known or all(part in _KINDS for part in _parts(name))
    is_quoted = gap[-1:] in ('"', "'", "`") and kind != "secret"
    return is_known and not is_quoted and _GAP.fullmatch(gap) is not None


def _is_harmless(value: str, kind: str, is_colon: bool) -> bool:
    """True: this value of a name that is not a secret's does not look like a secret."""
    if is_colon and kind != "foreign":
        # A sentence may follow.
        return kind not in ("other", "unsure") or not _is_odd(value)
    harmless = _HARMLESS_CODE if kind in ("unsure", "foreign") else _HARMLESS
    return harmless.fullmatch(value) is not None or kind_of(value) in ("named", "prose")


def _is_odd(text: str) -> bool:
    return bool(ODD.match(text)) and not _HARMLESS.fullmatch(text)


def after_at(text: str) -> int:
    """The end of the last @. 0: there is none."""
    at = _LAST_AT.match(text)
    return 0 if at is None else at.end()


@lru_cache(4_096)
def kind_of(name: str) -> str:
    """What a word names: a `secret`; a secret if its value looks like one (`unsure`); a value that
    errors show (`named`); nothing (`prose`); a foreign word (`foreign`); `other`."""
    kinds = [_KINDS.get(part, "other") for part in _parts(name)]
    if _KNOWN.fullmatch(name):
        return "prose"
    if "secret" in kinds or _SECRET_PART.search("".join(_PARTS.findall(name)).lower()):
        return "secret"
    if "unsure" in kinds:
        return "named" if kinds[-1] in ("named", "unsure") and "named" in kinds else "unsure"
    if kinds[-1:] in (["named"], ["prose"]):
        return kinds[-1]
    return "other" if name.isascii() else "foreign"


def _parts(name: str) -> list[str]:
    """The words of a name: `sslKey_file` has three."""
    parts = (part.lower() for part in _PARTS.findall(name))
    return [part if part in _KINDS else part.removesuffix("s") for part in parts]


def after_user(scheme: str, rest: str, mark: str) -> str:
    """`rest`, a URL after its scheme and slashes, with `mark` instead of the user."""
    authority = re.split(r"[/\\]", rest, maxsplit=1)[0]
    query = re.search("[?#;]", authority)
    colon = (_ANY_COLON if _NO_PORTS.match(scheme) else COLON).search(authority)
    if query is not None and (colon is None or colon.start() > query.start()):
        authority, colon = authority[: query.start()], None
    at = after_at(authority)
    if colon is not None and scheme and not at:
        # A password may hold a slash.
        at = after_at(rest)
    if not at or not (colon or re.search(r"(?<![/\\])[/\\]{2}$|[:Aa]$", scheme)):
        return rest
    if _CONTAINER_FIRST.match(scheme):
        mark = re.split("[:@%]", rest, maxsplit=1)[0] + "@"
    return mark + rest[at:]


def exception_line(text: str, publish: PublishExceptions) -> str | None:
    """The part of an exception's text that may leave the driver, by `publish_exceptions`: its first
    line (of a Python traceback the last), redacted and cut; or the type alone."""
    if publish == "none":
        return None
    raised = _PYTHON.search(text)
    text = (text[raised.start(1) :] if raised is not None else text).strip()
    if publish == "type":
        type_name = re.match(r"[\w.$]+", text)
        return type_name[0] if type_name is not None else "exception"
    # Redacted as a whole: a value may begin on the first line and end on another.
    first = redact(text).splitlines() or [""]
    return printable(first[0], _FIRST_LINE)


def hide_random(text: str) -> str:
    """`text` without tokens that look random."""
    return _TOKEN.sub(_without_random, text)


def _without_random(match: re.Match[str]) -> str:
    token = _ID.sub("", match[0])
    if len(token) < 20 or not any(character in "0123456789+=" for character in token):
        return match[0]
    changes = len(re.findall("[A-Z]+|[a-z]+|[0-9]+", re.sub("[^A-Za-z0-9]", "", token))) - 1
    is_random = changes >= _RANDOM * len(token) or re.fullmatch("[0-9a-f]{40,}", token)
    return HIDDEN if is_random else match[0]


def _without_alternating(match: re.Match[str]) -> str:
    is_odd = len(re.findall("[A-Za-z]+|[0-9]+", match[0])) > 3
    return HIDDEN if is_odd and not _HEXADECIMAL.fullmatch(match[0]) else match[0]
