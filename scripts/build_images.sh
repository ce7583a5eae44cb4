#!/bin/sh
# Builds the images of docker-compose.yml, labelled with this commit and with its time as the time of
# all that is in them: build_images.sh [OPTION...], each of `docker compose build`.
set -eu
cd "$(dirname "$0")/.."
IMAGE_VERSION=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE_REVISION=$(git describe --always --abbrev=40 --dirty --exclude='*')
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
IMAGE_CREATED=$(TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
# By digest, so that every stage has the same base, also while its tag moves: where a registry answers.
base=${PYTHON_IMAGE:-$(sed -n 's/^ARG PYTHON_IMAGE=//p' Dockerfile)}
if digest=$(docker buildx imagetools inspect "$base" --format '{{.Manifest.Digest}}' 2>/dev/null); then
    PYTHON_IMAGE=${base%@*}@$digest
    echo "base image: $PYTHON_IMAGE"
    export PYTHON_IMAGE
fi
export IMAGE_VERSION IMAGE_REVISION SOURCE_DATE_EPOCH IMAGE_CREATED
exec docker compose build "$@"
