# A stand-in for prom/prometheus where no image registry can be reached, for the compose test only.
# It has what docker-compose.yml uses of the real image: the programs on the PATH, the user nobody and
# the data folder. Prometheus is real: Debian's.
ARG BASE
FROM ${BASE}
RUN apt-get update -q && apt-get install -y -q --no-install-recommends prometheus \
    && rm -rf /var/lib/apt/lists/*
RUN install -d -o nobody -g nogroup /prometheus
USER nobody
VOLUME ["/prometheus"]
EXPOSE 9090
ENTRYPOINT ["prometheus"]
