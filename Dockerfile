# Two images: `service` measures lag and answers for it; `pipeline` is the demo's order producer and
# PySpark query. Versions and hashes come from requirements/, where from is the builder's matter.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS tools
ENV PYTHONDONTWRITEBYTECODE=1 UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /src
COPY requirements/bootstrap.txt requirements/build.txt requirements/
RUN python -m venv /opt/tools \
    && /opt/tools/bin/pip install --no-cache-dir --disable-pip-version-check \
        --require-hashes -r requirements/bootstrap.txt

FROM tools AS wheel
COPY pyproject.toml hatch_build.py README.md LICENSE CHANGELOG.md ./
COPY schemas schemas
COPY kafka kafka
COPY offsets offsets
COPY listener listener
COPY service service
COPY pipeline pipeline
COPY sparklag sparklag
COPY web web
RUN --mount=type=cache,target=/var/cache/uv \
    /opt/tools/bin/uv build --wheel --out-dir /wheel \
        --build-constraints requirements/build.txt --require-hashes

# The packages come before the wheel, so that a change of ours does not install them anew.
FROM tools AS service-environment
COPY requirements/service.txt requirements/
RUN --mount=type=cache,target=/var/cache/uv \
    python -m venv --without-pip /opt/sparklag \
    && /opt/tools/bin/uv pip sync --python /opt/sparklag/bin/python --compile-bytecode \
        --require-hashes requirements/service.txt
COPY --from=wheel /wheel /wheel
RUN /opt/tools/bin/uv pip install --python /opt/sparklag/bin/python --compile-bytecode \
        --no-deps --no-cache /wheel/*.whl

FROM tools AS pipeline-environment
COPY requirements/demo.txt requirements/
RUN --mount=type=cache,target=/var/cache/uv \
    python -m venv --without-pip /opt/sparklag \
    && /opt/tools/bin/uv pip sync --python /opt/sparklag/bin/python --compile-bytecode \
        --require-hashes --build-constraints requirements/build.txt requirements/demo.txt
COPY --from=wheel /wheel /wheel
RUN /opt/tools/bin/uv pip install --python /opt/sparklag/bin/python --compile-bytecode \
        --no-deps --no-cache /wheel/*.whl

FROM ${PYTHON_IMAGE} AS runtime
# A fixed number, so that volumes and Kubernetes' runAsNonRoot can rely on it. Hadoop inside Spark
# asks for the user's name, so there has to be one.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent sparklag
ENV PATH=/opt/sparklag/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/sparklag

FROM runtime AS java
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
        openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

# Spark's Kafka connector, so that a container downloads nothing when it starts.
FROM java AS connector
COPY --from=pipeline-environment /opt/sparklag /opt/sparklag
ENV XDG_CACHE_HOME=/var/cache
RUN python -c "from sparklag_pipeline.broker.maven import spark_kafka_jars; spark_kafka_jars()" \
    && rm -rf /var/cache/sparklag/ivy

FROM java AS pipeline
COPY --from=pipeline-environment /opt/sparklag /opt/sparklag
COPY --from=connector /var/cache/sparklag /var/cache/sparklag
ENV XDG_CACHE_HOME=/var/cache
RUN install -d -o sparklag -g sparklag /var/lib/sparklag /var/lib/sparklag/checkpoint
USER 10001:10001
VOLUME ["/var/lib/sparklag/checkpoint"]
CMD ["python", "-m", "sparklag_pipeline.demo.order_totals", "--help"]

FROM runtime AS service
COPY --from=service-environment /opt/sparklag /opt/sparklag
# Inside a container the loopback address would be reached by nobody.
ENV SPARKLAG_HTTP_HOST=0.0.0.0
USER 10001:10001
EXPOSE 8085
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('SPARKLAG_HTTP_PORT', '8085') + '/health/ready', timeout=4)"]
ENTRYPOINT ["sparklag"]
CMD ["serve"]
