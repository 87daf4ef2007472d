# Parley in a container: `docker build -t parley .`. Add extras with --build-arg EXTRAS="--extra otel".
FROM python:3.11-slim AS build
COPY --from=ghcr.io/astral-sh/uv:0.9 /uv /usr/local/bin/uv
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
WORKDIR /app
ARG EXTRAS=""
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY simulator/pyproject.toml simulator/
RUN uv sync --locked --no-dev --no-group local --no-install-workspace $EXTRAS
COPY bot bot
COPY channels channels
COPY core core
COPY simulator simulator
RUN uv sync --locked --no-dev --no-group local --no-editable $EXTRAS
RUN DATA_DIR=/data .venv/bin/parley warm || echo "tokens will be estimated"

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /data parley && install -d -o parley /data
COPY --from=build /app/.venv /app/.venv
COPY --from=build --chown=parley /data /data
ENV PATH=/app/.venv/bin:$PATH DATA_DIR=/data PORT=3000 LISTEN_HOST=0.0.0.0 PYTHONUNBUFFERED=1
USER parley
WORKDIR /data
VOLUME /data
EXPOSE 3000
# /healthz fails if the process hangs. /readyz also fails while a platform is disconnected: no reason for a restart.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ[\"PORT\"]}/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
CMD ["parley", "run"]
