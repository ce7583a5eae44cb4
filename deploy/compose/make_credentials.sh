#!/bin/sh
# Makes, once, what the profile `secure` of docker-compose.yml connects with: certificates of the broker
# and of its administrator, passwords, and the key that messages are signed with. Each container has
# its own volume in /credentials and sees no other. The authority's key is not kept.
set -eu
cd /tmp
done=/credentials/kafka/kafka.pem
[ ! -e $done ] || exit 0
umask 077

request() { openssl req -x509 -newkey rsa:2048 -nodes -days 3650 "$@" 2>/dev/null; }

# NAME.pem: a key and its certificate.
certificate() {
    request -CA ca.crt -CAkey ca.key -subj "/CN=$1" -keyout "$1.key" -out "$1.crt" \
        -addext basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:kafka,DNS:localhost
    cat "$1.key" "$1.crt" >"$1.pem"
}

# keep OWNER FOLDER FILE [NAME]
keep() {
    kept=/credentials/$2/${4:-$3}
    cp -f "$3" "$kept"
    chmod 400 "$kept"
    chown "$1:$1" "$kept"
}

request -subj "/CN=sparklag compose" -addext keyUsage=critical,keyCertSign -keyout ca.key -out ca.crt
certificate kafka
certificate admin
openssl rand -hex 24 >signing.key
for client in producer query service; do
    openssl rand -hex 24 >$client.password
    # The names are those of settings: sparklag reads them from files.
    keep 10001 $client $client.password SPARKLAG_KAFKA__SASL_PASSWORD
    keep 10001 $client signing.key SPARKLAG_SIGNING_KEY
    keep 10001 $client ca.crt
    keep 10001 admin $client.password
done
keep 10001 admin ca.crt
keep 10001 admin admin.pem
cat >client.properties <<PROPERTIES
security.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.location=/etc/kafka/secrets/kafka.pem
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/secrets/ca.crt
PROPERTIES
keep 1000 kafka client.properties
keep 1000 kafka ca.crt
keep 1000 kafka kafka.pem
