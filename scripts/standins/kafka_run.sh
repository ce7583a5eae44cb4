#!/bin/bash
# KAFKA_A_B=x becomes a.b=x, as in the real image: __ stands for _ and ___ for -.
set -euo pipefail
properties=/opt/kafka/config/server.properties
while IFS='=' read -r name value; do
    case $name in KAFKA_OPTS | KAFKA_HEAP_OPTS | KAFKA_LOG_LEVEL) continue ;; esac
    name=${name#KAFKA_}
    name=${name,,}
    name=${name//___/-}
    name=${name//__/$'\001'}
    name=${name//_/.}
    printf '%s=%s\n' "${name//$'\001'/_}" "$value"
done < <(env | grep '^KAFKA_') >"$properties"

/opt/kafka/bin/kafka-run-class.sh kafka.tools.StorageTool format --ignore-formatted \
    --cluster-id "${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}" --config "$properties"
KAFKA_LOG_LEVEL=WARN exec /opt/kafka/bin/kafka-run-class.sh kafka.Kafka "$properties"
