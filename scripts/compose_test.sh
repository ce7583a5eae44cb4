#!/usr/bin/env bash
# Brings docker-compose.yml up under a project name and on ports of its own, waits for the demo
# query's lag, then the profile `monitoring`, checks that the containers are hardened, takes everything
# down, leaves nothing.
# Uses the Docker that is there. Where there is none, or no registry, see compose_engine.sh: then the
# base images are stand-ins, and the last line says so.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python_image=python:3.12-slim-bookworm
kafka_image=apache/kafka:4.1.1
prometheus_image=prom/prometheus:v3.5.0
grafana_image=grafana/grafana:12.2.0
compose_version=v2.40.3
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sparklag/compose-test
project=sparklag-test-$$
mkdir -p "$cache"
run=$(mktemp -d)

# shellcheck source=scripts/compose_engine.sh
. scripts/compose_engine.sh

free_port() {
    .venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

compose() { docker compose -p "$project" "${files[@]}" "$@"; }

clean_up() {
    local status=$?
    trap - EXIT INT TERM
    if [ -n "${up:-}" ]; then
        if [ $status -ne 0 ]; then
            compose ps -a >&2
            compose logs --no-color --tail 40 >&2
        fi
        COMPOSE_PROFILES=monitoring compose down -v --remove-orphans --timeout 15 >/dev/null 2>&1
        docker image rm -f "$PIPELINE_IMAGE" "$SERVICE_IMAGE" >/dev/null 2>&1
        local left
        left=$(docker ps -aq --filter "label=com.docker.compose.project=$project"
            docker volume ls -q --filter "label=com.docker.compose.project=$project"
            docker network ls -q --filter "label=com.docker.compose.project=$project")
        if [ -n "$left" ]; then
            note "left behind: $left"
            status=1
        fi
    fi
    stop_engine
    rm -rf "$run"
    [ $status -eq 0 ] && note "passed in $SECONDS s${stand_ins:+, on stand-in base images:$stand_ins}"
    exit $status
}
trap clean_up EXIT
trap 'exit 130' INT TERM

ensure_engine
ensure_compose
ensure_images
export PIPELINE_IMAGE=$project-pipeline SERVICE_IMAGE=$project-service
HTTP_PORT=$(free_port)
KAFKA_PORT=$(free_port)
PROMETHEUS_PORT=$(free_port)
GRAFANA_PORT=$(free_port)
export HTTP_PORT KAFKA_PORT PROMETHEUS_PORT GRAFANA_PORT
files=(-f docker-compose.yml)
if [ -n "$stand_ins" ]; then
    # Without a firewall the engine's own network reaches nothing outside.
    printf 'services:\n' >"$run/host-network.yml"
    for service in producer query service; do
        printf '  %s: {build: {network: host}}\n' $service >>"$run/host-network.yml"
    done
    files+=(-f "$run/host-network.yml")
fi

note "building"
nice docker compose -p "$project" "${files[@]}" --progress plain build >"$cache/build.log" 2>&1 || {
    tail -n 30 "$cache/build.log" >&2
    fail "the images do not build (log: $cache/build.log)"
}

note "starting"
up=yes
started=$SECONDS
compose up -d --wait --wait-timeout 240 >"$cache/up.log" 2>&1 || {
    tail -n 20 "$cache/up.log" >&2
    fail "the stack did not become healthy"
}
note "healthy after $((SECONDS - started)) s"

# A lag that is known, over REST and as an event on the topic, both reached from the host.
.venv/bin/python scripts/compose_lag.py "http://127.0.0.1:$HTTP_PORT/lag/orders" \
    "127.0.0.1:$KAFKA_PORT" || fail "no lag of the query"

[ "$(compose ps -aq | wc -l)" -eq 4 ] || fail "the profile is started without being asked for"
export COMPOSE_PROFILES=monitoring
compose up -d --wait --wait-timeout 240 "${monitoring[@]}" >>"$cache/up.log" 2>&1 || {
    tail -n 20 "$cache/up.log" >&2
    fail "the monitoring did not become healthy"
}
# A series that Prometheus has recorded by our rules from what it scraped.
asked='query:sparklag_query_lag:max{query="orders"}'
for attempt in $(seq 60); do
    found=$(compose exec -T prometheus promtool query instant http://127.0.0.1:9090 "$asked")
    [ -z "$found" ] || break
    [ "$attempt" -lt 60 ] || fail "Prometheus has no $asked"
    sleep 1
done
note "Prometheus: $found"
if [[ " ${monitoring[*]} " = *" grafana "* ]]; then
    dashboards=$(compose exec -T grafana wget -q -O - 'http://127.0.0.1:3000/api/search?type=dash-db')
    for path in deploy/grafana/*.json; do
        [[ $dashboards = *"\"$(basename "$path" .json)\""* ]] || fail "Grafana has no $path: $dashboards"
    done
    note "Grafana has the dashboards"
fi

for service in kafka producer query service "${monitoring[@]}"; do
    container=$(compose ps -q "$service")
    user=$(docker exec "$container" id -u)
    [ "$user" != 0 ] || fail "$service runs as root"
    hardening=$(docker inspect -f '{{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}}' "$container")
    [ "$hardening" = "[ALL] [no-new-privileges:true]" ] || fail "$service has $hardening"
    if [ "$service" != kafka ]; then
        docker exec "$container" touch /probe 2>/dev/null && fail "$service can write to its image"
        docker exec "$container" touch /var/lib/sparklag/probe 2>/dev/null &&
            fail "$service can write to its image"
    fi
    note "$service: user $user, $hardening, read-only: $(docker inspect -f '{{.HostConfig.ReadonlyRootfs}}' "$container")"
done
