# The gateway with its memory; docs/gateway.md says how to run it. EXTRAS: "[discord,slack]", "[postgres]".
FROM python:3.12-slim
ARG EXTRAS=""
COPY requirements.lock /src/
RUN pip install --no-cache-dir --no-deps --require-hashes --requirement /src/requirements.lock
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
RUN pip install --no-cache-dir --no-build-isolation "/src$EXTRAS"
RUN useradd --uid 10001 --home-dir /data hermes \
    && install -d -o 10001 -m 700 /data
USER 10001
ENV HERMES_HOME=/data
VOLUME /data
EXPOSE 8642
HEALTHCHECK --start-period=30s CMD ["hermes", "gateway", "status"]
CMD ["hermes", "gateway", "run"]
