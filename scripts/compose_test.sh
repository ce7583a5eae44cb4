#!/usr/bin/env bash
# Builds the images of docker-compose.yml and runs tests/containers, which look into them and bring the
# stacks up, under a project name and on ports of their own; leaves nothing. Arguments go to pytest.
# Uses the Docker that is there. Where there is none, or no registry, see compose_engine.sh: then the
# base images are stand-ins, and the last line says so.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python_image=python:3.12-slim-bookworm
kafka_image=apache/kafka:4.4.0
prometheus_image=prom/prometheus:v3.5.0
grafana_image=grafana/grafana:12.2.0
compose_version=v2.40.3
cache=${XDG_CACHE_HOME:-$HOME/.cache}/sparklag/compose-test
export COMPOSE_PROJECT_NAME=sparklag-test-$$ COMPOSE_FILE=docker-compose.yml
mkdir -p "$cache"
run=$(mktemp -d)

# shellcheck source=scripts/compose_engine.sh
. scripts/compose_engine.sh

free_port() {
    .venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

clean_up() {
    local status=$? left
    trap - EXIT INT TERM
    if [ -n "${building:-}" ]; then
        docker compose --profile '*' down -v --remove-orphans --timeout 15 >/dev/null 2>&1
        docker image rm -f "$PIPELINE_IMAGE" "$SERVICE_IMAGE" >/dev/null 2>&1
        docker image prune -f --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" >/dev/null 2>&1
        left=$(for kind in container volume network; do
            docker $kind ls -q --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
                $([ $kind != container ] || echo -a)
        done)
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
export PIPELINE_IMAGE=$COMPOSE_PROJECT_NAME-pipeline SERVICE_IMAGE=$COMPOSE_PROJECT_NAME-service
for port in HTTP_PORT SECURE_HTTP_PORT KAFKA_PORT PROMETHEUS_PORT GRAFANA_PORT; do
    export "$port=$(free_port)"
done
if [ -n "$stand_ins" ]; then
    # Without a firewall the engine's own network reaches nothing outside.
    printf 'services:\n' >"$run/host-network.yml"
    for service in producer query service; do
        printf '  %s: {build: {network: host}}\n' $service >>"$run/host-network.yml"
    done
    COMPOSE_FILE=$COMPOSE_FILE:$run/host-network.yml
fi

note "building"
building=yes
nice sh scripts/build_images.sh --progress plain >"$cache/build.log" 2>&1 || {
    tail -n 30 "$cache/build.log" >&2
    fail "the images do not build (log: $cache/build.log)"
}
.venv/bin/python -m pytest tests/containers -m containers -rP "$@"
