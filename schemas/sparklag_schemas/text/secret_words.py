"""The words of errors, by what they say about the next word. `redaction` reads them."""

from __future__ import annotations

import re
from typing import Final

SECRET_PART: Final = re.compile(
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
"""Of the name of a secret, wherever in it, without its separators."""
KINDS: Final = {
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
        " service sink size source stage start status subscribe table task time timeout timestamp"
        " topic type uri url user username version zone",
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
"""What a word says. `named`: its value is told in errors. All may follow the name of a secret."""
