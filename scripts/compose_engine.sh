# shellcheck shell=bash
# Sourced by compose_test.sh: a Docker engine, docker compose and the base images, taken as they are
# where the machine has them, made where it has not. What is made is kept in $cache and used again.

note() { printf 'compose-test: %s\n' "$*" >&2; }
fail() {
    note "$*"
    exit 1
}
# shellcheck source=scripts/minimal_root.sh
. scripts/minimal_root.sh

# Starts an engine of our own where none answers. It opens no firewall rules and is stopped at the
# end by its process id.
ensure_engine() {
    if docker info >/dev/null 2>&1; then
        return
    fi
    [ "$(id -u)" -eq 0 ] || fail "no Docker engine answers: start Docker, then try again"
    if ! command -v dockerd >/dev/null; then
        unpack_engine
        PATH="$cache/engine/usr/bin:$cache/engine/usr/sbin:$PATH"
    fi
    exec 9>"$cache/lock"
    flock -n 9 || fail "another run uses the engine in $cache"
    # Not for the machine's own rules: containers find each other's names through rules in their own
    # network namespace, which the engine sets with this command.
    if ! command -v iptables >/dev/null; then
        apt-get update -q >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends iptables >&2 ||
            fail "the engine needs the iptables command"
    fi
    export DOCKER_HOST="unix://$run/docker.sock"
    note "starting an engine of our own (log: $cache/dockerd.log)"
    dockerd --host "$DOCKER_HOST" --data-root "$cache/data" --exec-root "$run/exec" \
        --pidfile "$run/dockerd.pid" --iptables=false --ip6tables=false --ip-masq=false \
        >"$cache/dockerd.log" 2>&1 </dev/null 9>&- &
    engine_pid=$!
    for _ in $(seq 60); do
        docker info >/dev/null 2>&1 && return
        kill -0 "$engine_pid" 2>/dev/null || break
        sleep 0.5
    done
    tail -n 5 "$cache/dockerd.log" >&2
    fail "the engine did not start"
}

stop_engine() {
    [ -n "${engine_pid:-}" ] || return 0
    kill "$engine_pid" 2>/dev/null
    wait "$engine_pid" 2>/dev/null
    engine_pid=""
    # A mount that the engine leaves at times would keep its folder from being removed.
    umount "$run/exec/netns/default" 2>/dev/null
    return 0
}

# The engine's Debian packages, unpacked beside the system instead of installed into it.
unpack_engine() {
    [ ! -x "$cache/engine/usr/sbin/dockerd" ] || return 0
    command -v apt-get >/dev/null || fail "no Docker engine here: install Docker, then try again"
    note "fetching an engine (Debian's docker.io)"
    apt-get update -q >&2
    (cd "$cache" && apt-get download -q docker.io containerd runc tini >&2) ||
        fail "apt-get download failed"
    local package
    for package in "$cache"/*.deb; do dpkg-deb -x "$package" "$cache/engine.part"; done
    rm -f "$cache"/*.deb
    mv "$cache/engine.part" "$cache/engine"
}

ensure_compose() {
    if docker compose version >/dev/null 2>&1; then
        return
    fi
    local plugins="$cache/config/cli-plugins" module
    if [ ! -x "$plugins/docker-compose" ]; then
        command -v go >/dev/null || fail "no docker compose here: install its plugin, then try again"
        note "building docker compose $compose_version from its Go module (minutes, once)"
        mkdir -p "$plugins"
        module=$(go mod download -json "github.com/docker/compose/v2@$compose_version" |
            sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
        [ -n "$module" ] || fail "docker compose cannot be had"
        (cd "$module" && CGO_ENABLED=0 nice go build -trimpath -o "$plugins/docker-compose.part" \
            -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$compose_version" ./cmd) ||
            fail "building docker compose failed"
        mv "$plugins/docker-compose.part" "$plugins/docker-compose"
    fi
    export DOCKER_CONFIG="$cache/config"
    docker compose version >/dev/null || fail "docker compose does not run"
}

# The real images where they are here or a registry has them, else stand-ins with names of their own,
# so that they are never taken for the real ones. Sets and exports what docker-compose.yml reads.
ensure_images() {
    stand_ins=""
    PYTHON_IMAGE=$python_image
    KAFKA_IMAGE=$kafka_image
    if ! is_available "$python_image"; then
        PYTHON_IMAGE=sparklag-stand-in/$python_image
        stand_ins="$stand_ins $PYTHON_IMAGE"
        has_image "$PYTHON_IMAGE" || make_python_stand_in "$PYTHON_IMAGE"
    fi
    if ! is_available "$kafka_image"; then
        # Made anew when the scripts it is made from change.
        KAFKA_IMAGE=sparklag-stand-in/$kafka_image-$(cat scripts/standins/* | cksum | cut -d' ' -f1)
        stand_ins="$stand_ins $KAFKA_IMAGE"
        has_image "$KAFKA_IMAGE" || make_kafka_stand_in "$KAFKA_IMAGE"
    fi
    PROMETHEUS_IMAGE=$prometheus_image
    if ! is_available "$prometheus_image"; then
        PROMETHEUS_IMAGE=sparklag-stand-in/$prometheus_image
        stand_ins="$stand_ins $PROMETHEUS_IMAGE"
        has_image "$PROMETHEUS_IMAGE" || make_prometheus_stand_in "$PROMETHEUS_IMAGE"
    fi
    export PYTHON_IMAGE KAFKA_IMAGE PROMETHEUS_IMAGE
    # Nothing can stand in for Grafana.
    export MONITORING=prometheus
    if is_available "$grafana_image"; then
        MONITORING="prometheus grafana"
    else
        note "$grafana_image cannot be pulled: Grafana is not started"
    fi
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

is_available() { has_image "$1" || timeout 300 docker pull -q "$1" >/dev/null 2>&1; }

# Debian with its own Python (3.11).
make_python_stand_in() {
    note "making $1 from Debian's packages ($python_image cannot be pulled)"
    [ "$(id -u)" -eq 0 ] || fail "a stand-in needs root"
    ensure_mmdebstrap
    local tree="$cache/python-stand-in.tar"
    # shellcheck disable=SC2016 # $1 is for the hook: the root
    minimal_root bookworm ca-certificates,python3,python3-venv,python3-pip "$tree" \
        'mkdir -p "$1/usr/local/bin" && ln -s /usr/bin/python3 "$1/usr/local/bin/python"' \
        'ln -s /usr/bin/python3 "$1/usr/local/bin/python3"' >&2 || fail "mmdebstrap failed"
    local bundle=/etc/ssl/certs/ca-certificates.crt
    docker import -c "ENV SSL_CERT_FILE=$bundle PIP_CERT=$bundle NODE_EXTRA_CA_CERTS=$bundle" \
        -c 'CMD ["python3"]' "$tree" "$1" >/dev/null || fail "docker import failed"
}

# Prometheus as Debian has it.
make_prometheus_stand_in() {
    note "making $1 from Debian's package ($prometheus_image cannot be pulled)"
    local context base=sparklag-stand-in/$python_image
    has_image "$base" || make_python_stand_in "$base"
    context=$(mktemp -d "$run/prometheus.XXXXXX")
    nice docker build -q --network host --build-arg BASE="$base" \
        -t "$1" -f scripts/standins/prometheus.Dockerfile "$context" >&2 ||
        fail "building $1 failed"
}

# The broker's real jars behind the interface of the official image.
make_kafka_stand_in() {
    note "making $1 from the broker's jars ($kafka_image cannot be pulled)"
    local context base=sparklag-stand-in/$python_image
    has_image "$base" || make_python_stand_in "$base"
    context=$(mktemp -d "$run/kafka.XXXXXX")
    mkdir "$context/libs" "$context/bin"
    .venv/bin/python - "$context/libs" <<'PYTHON' || fail "the broker's jars cannot be had"
import shutil
import sys

from sparklag_jobs.broker.maven import KAFKA_VERSION, Module, resolve_jars

wanted = [
    Module("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    Module("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
]
for jar in resolve_jars(wanted):
    shutil.copy(jar, sys.argv[1])
PYTHON
    install -m 755 scripts/standins/kafka_run.sh "$context/run"
    install -m 755 scripts/standins/kafka_run_class.sh "$context/bin/kafka-run-class.sh"
    printf '#!/bin/sh\nexec /opt/kafka/bin/kafka-run-class.sh %s "$@"\n' \
        org.apache.kafka.tools.BrokerApiVersionsCommand >"$context/bin/kafka-broker-api-versions.sh"
    printf '#!/bin/sh\nexec /opt/kafka/bin/kafka-run-class.sh %s "$@"\n' \
        org.apache.kafka.tools.TopicCommand >"$context/bin/kafka-topics.sh"
    chmod 755 "$context"/bin/*
    nice docker build -q --network host --build-arg BASE="$base" \
        -t "$1" -f scripts/standins/kafka.Dockerfile "$context" >&2 ||
        fail "building $1 failed"
}
