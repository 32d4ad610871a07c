# syntax=docker/dockerfile:1
FROM python:3.11-slim-bookworm AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /srv/bessemer

FROM base AS app
COPY pyproject.toml README.md LICENSE ./
COPY bessemer bessemer
RUN pip install '.[server]'
COPY app app
RUN useradd --system --uid 10001 bessemer && install -d -o bessemer /var/lib/bessemer
USER bessemer
ENV BESSEMER_HOST=0.0.0.0 BESSEMER_PORT=8000 BESSEMER_DATA=/var/lib/bessemer
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz')"]
CMD ["python", "-m", "app"]

FROM base AS worker
RUN apt-get update && apt-get install --no-install-recommends --yes libseccomp2 && rm -rf /var/lib/apt/lists/*
COPY pyproject.toml README.md LICENSE ./
COPY bessemer bessemer
# TORCH_INDEX names the index of torch's CPU builds, where the default index would bring CUDA with it.
ARG TORCH_INDEX=
RUN pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} '.[server,worker]'
COPY worker worker
RUN python -m worker.kernels.compile
ENV BESSEMER_DATA=/var/lib/bessemer
CMD ["python", "-m", "worker"]
