#!/bin/sh
# shellcheck disable=SC2086  # the variable holds several options
exec java ${KAFKA_HEAP_OPTS:--Xmx256m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
    -Dorg.apache.logging.log4j.level="${KAFKA_LOG_LEVEL:-ERROR}" \
    -cp '/opt/kafka/libs/*' "$@"
