# A stand-in for apache/kafka where no image registry can be reached, for the compose test only.
# It has what docker-compose.yml uses of the real image: KAFKA_* variables that become properties,
# the scripts in /opt/kafka/bin, the user appuser (1000) and the data folder. The broker is real.
ARG BASE
FROM ${BASE}
RUN apt-get update -q && apt-get install -y -q --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1000 --create-home appuser \
    && mkdir -p /opt/kafka/config /var/lib/kafka/data \
    && chown appuser: /opt/kafka/config /var/lib/kafka/data
COPY libs /opt/kafka/libs
COPY bin /opt/kafka/bin
COPY run /etc/kafka/docker/run
USER appuser
VOLUME ["/var/lib/kafka/data"]
EXPOSE 9092
CMD ["/etc/kafka/docker/run"]
