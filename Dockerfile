# Two images: `service` measures lag and answers for it, without a shell or a package manager;
# `pipeline` is the demo's order producer and PySpark query. Versions and hashes come from
# requirements/, where from is the builder's matter. `make images` sets the arguments.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS tools
ENV PYTHONDONTWRITEBYTECODE=1 UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /src
COPY requirements/bootstrap.txt requirements/build.txt requirements/sbom.txt requirements/
RUN python -m venv /opt/tools \
    && /opt/tools/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r requirements/bootstrap.txt -r requirements/sbom.txt

FROM tools AS wheel
COPY pyproject.toml hatch_build.py README.md LICENSE CHANGELOG.md ./
COPY schemas schemas
COPY kafka kafka
COPY offsets offsets
COPY listener listener
COPY service service
COPY jobs jobs
COPY sparklag sparklag
COPY sparklag_auto sparklag_auto
COPY web web
RUN --mount=type=cache,target=/var/cache/uv \
    /opt/tools/bin/uv build --wheel --out-dir /wheel \
        --build-constraints requirements/build.txt --require-hashes

# The packages come before the wheel, so that a change of ours does not install them anew.
FROM tools AS service-environment
COPY requirements/service.txt requirements/
RUN --mount=type=cache,target=/var/cache/uv \
    "$(realpath /opt/tools/bin/python)" -m venv --without-pip /opt/sparklag \
    && /opt/tools/bin/uv pip sync --python /opt/sparklag/bin/python \
        --require-hashes requirements/service.txt
COPY --from=wheel /wheel /wheel
COPY scripts/image_environment.sh .
ARG SOURCE_DATE_EPOCH=0
RUN sh image_environment.sh

FROM tools AS pipeline-environment
COPY requirements/demo.txt requirements/
RUN --mount=type=cache,target=/var/cache/uv \
    "$(realpath /opt/tools/bin/python)" -m venv --without-pip /opt/sparklag \
    && /opt/tools/bin/uv pip sync --python /opt/sparklag/bin/python \
        --require-hashes --build-constraints requirements/build.txt requirements/demo.txt
COPY --from=wheel /wheel /wheel
COPY scripts/image_environment.sh .
ARG SOURCE_DATE_EPOCH=0
RUN sh image_environment.sh

FROM ${PYTHON_IMAGE} AS java
# Hadoop inside Spark asks for the user's name, so there has to be one.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent sparklag
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/opt/sparklag/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 XDG_CACHE_HOME=/var/cache
WORKDIR /var/lib/sparklag

# Spark's Kafka connector, so that a container downloads nothing when it starts.
FROM java AS connector
COPY --from=pipeline-environment /opt/sparklag /opt/sparklag
RUN python -c "from sparklag_jobs.broker.maven import spark_kafka_jars; spark_kafka_jars()" \
    && rm -rf /var/cache/sparklag/ivy

FROM java AS pipeline
COPY --from=pipeline-environment /opt/sparklag /opt/sparklag
COPY --from=connector /var/cache/sparklag /var/cache/sparklag
RUN install -d -o sparklag -g sparklag /var/lib/sparklag /var/lib/sparklag/checkpoint
USER 10001:10001
VOLUME ["/var/lib/sparklag/checkpoint"]
CMD ["python", "-m", "sparklag_jobs.demo.order_totals", "--help"]
ARG IMAGE_VERSION IMAGE_REVISION IMAGE_CREATED IMAGE_SOURCE
LABEL org.opencontainers.image.title="sparklag pipeline" \
    org.opencontainers.image.description="The demo of sparklag: an order producer, and a PySpark query whose lag is measured." \
    org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.version=$IMAGE_VERSION \
    org.opencontainers.image.revision=$IMAGE_REVISION \
    org.opencontainers.image.created=$IMAGE_CREATED \
    org.opencontainers.image.source=$IMAGE_SOURCE

FROM service-environment AS service-files
COPY scripts/image_files.sh .
RUN sh image_files.sh

FROM scratch AS service
COPY --from=service-files /files/base/ /
COPY --from=service-files /files/application/ /
# Inside a container the loopback address would be reached by nobody.
ENV PATH=/opt/sparklag/bin LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt SPARKLAG_HTTP_HOST=0.0.0.0
WORKDIR /var/lib/sparklag
USER 10001:10001
EXPOSE 8085
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, ssl, urllib.request as r; e = os.environ.get; r.urlopen(('https' if e('SPARKLAG_HTTP_TLS__CERTFILE') else 'http') + '://127.0.0.1:' + (e('SPARKLAG_HTTP_MONITORING_PORT') or e('SPARKLAG_HTTP_PORT', '8085')) + '/health/ready', timeout=4, context=ssl._create_unverified_context())"]
ENTRYPOINT ["sparklag"]
CMD ["serve"]
ARG IMAGE_VERSION IMAGE_REVISION IMAGE_CREATED IMAGE_SOURCE
LABEL org.opencontainers.image.title="sparklag" \
    org.opencontainers.image.description="Measures the consumer lag of Spark Structured Streaming queries, and serves it over REST." \
    org.opencontainers.image.licenses=Apache-2.0 \
    org.opencontainers.image.version=$IMAGE_VERSION \
    org.opencontainers.image.revision=$IMAGE_REVISION \
    org.opencontainers.image.created=$IMAGE_CREATED \
    org.opencontainers.image.source=$IMAGE_SOURCE
