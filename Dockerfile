# Three images: `app` (no torch, no TVM), `worker`, and `device` for other machines. See docs/containers.md.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
# An image with wheels in its root, for builds without an index. Default: none.
ARG WHEELS_IMAGE=scratch

# hadolint ignore=DL3006
FROM ${WHEELS_IMAGE} AS wheels
WORKDIR /

# hadolint ignore=DL3006
FROM ${PYTHON_IMAGE} AS python
ENV PATH=/opt/venv/bin:/srv/bessemer/bin:$PATH PYTHONPATH=/srv/bessemer PYTHONUNBUFFERED=1
WORKDIR /srv/bessemer

FROM python AS build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --no-install-recommends --yes binutils && rm -rf /var/lib/apt/lists/*
COPY ci/containers/dependencies /usr/local/bin/

FROM build AS app-dependencies
COPY locks/app.txt /build/
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=cache,target=/root/.cache/pip \
    dependencies /build/app.txt
COPY ci/containers/slim /usr/local/bin/
RUN slim /opt/venv

FROM build AS worker-dependencies
# torch's CPU builds: the default index would install CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Any text: the worker also compiles for NVIDIA GPUs.
ARG CUDA=
# Any text: the worker also has ONNX Runtime and OpenVINO, to compare libraries with.
ARG PEERS=
COPY locks/worker.txt locks/worker-cuda.txt locks/worker-peers.txt locks/worker-cuda-peers.txt /build/
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=cache,target=/root/.cache/pip \
    dependencies "/build/worker${CUDA:+-cuda}${PEERS:+-peers}.txt"

# zig compiles C only in this stage, so its cache and C library are in no image.
FROM worker-dependencies AS kernels
COPY bessemer bessemer
COPY worker worker
RUN python -m worker.compiler.kernels.compile && python -m worker.compiler.codegen.standalone.prepare

# qemu and the C libraries of other platforms, with which the worker verifies libraries for them.
FROM python AS emulators
COPY ci/emulators /usr/local/bin/
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN emulators && mkdir /emulators \
 && tar --create --directory=/ usr/bin/qemu-aarch64-static usr/bin/qemu-riscv64-static usr/aarch64-linux-gnu usr/riscv64-linux-gnu \
      usr/lib/ld-musl-x86_64.so.1 usr/lib/x86_64-linux-musl usr/lib/ld-musl-aarch64.so.1 usr/lib/aarch64-linux-musl \
    | tar --extract --directory=/emulators

FROM worker-dependencies AS worker-slim
ARG PEERS=
COPY ci/containers/slim /usr/local/bin/
RUN slim /opt/venv

FROM build AS project
COPY pyproject.toml README.md LICENSE /build/
COPY bessemer /build/bessemer
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/root/.cache/pip \
    pip install --disable-pip-version-check --no-deps --target /srv/bessemer /build
COPY LICENSE ./

# The documentation site, which the app serves at /guide.
FROM build AS guide
COPY locks/guide.txt /build/
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=cache,target=/root/.cache/pip \
    dependencies /build/guide.txt
COPY mkdocs.yml README.md ./
COPY docs docs
COPY app/console/static/icon.svg app/console/static/
RUN mkdocs build --quiet --strict

FROM project AS app-project
COPY app app
COPY --from=guide /srv/bessemer/app/guide app/guide
RUN python3 -m compileall -q .

FROM project AS worker-project
COPY worker worker
COPY --from=kernels /srv/bessemer/worker/compiler/kernels/objects worker/compiler/kernels/objects
COPY --from=kernels /srv/bessemer/worker/compiler/codegen/standalone/objects worker/compiler/codegen/standalone/objects
RUN python3 -m compileall -q .

FROM python AS app
RUN useradd --system --uid 10001 --no-create-home bessemer && install -d -o bessemer /var/lib/bessemer
COPY --from=app-dependencies /opt/venv /opt/venv
COPY --from=app-project /srv/bessemer /srv/bessemer
COPY ci/containers/answers /usr/local/bin/
USER 10001
ENV BESSEMER_HOST=0.0.0.0 BESSEMER_PORT=8000 BESSEMER_DATA=/var/lib/bessemer
EXPOSE 8000
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["answers", "BESSEMER_PORT", "/healthz"]
CMD ["python", "-m", "app"]

FROM python AS device-source
COPY worker worker

FROM python AS device
COPY --from=device-source /srv/bessemer/worker/device.py device.py
USER 10001
ENTRYPOINT ["python", "/srv/bessemer/device.py"]

FROM python AS worker
# torch.compile needs a C++ compiler.
ARG PEERS=
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --no-install-recommends --yes libseccomp2 ${PEERS:+g++} && rm -rf /var/lib/apt/lists/* \
 && install -d -m 711 /work
COPY --from=emulators /emulators /
COPY --from=worker-slim /opt/venv /opt/venv
COPY --from=worker-project /srv/bessemer /srv/bessemer
COPY ci/containers/answers /usr/local/bin/
# What NVIDIA's container runtime mounts if a GPU is given to the container.
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
ENV BESSEMER_DATA=/var/lib/bessemer BESSEMER_WORK_DIR=/work BESSEMER_METRICS_HOST=0.0.0.0 BESSEMER_METRICS_PORT=9100
EXPOSE 9100
HEALTHCHECK --interval=5s --timeout=5s --start-period=120s CMD ["answers", "BESSEMER_METRICS_PORT", "/readyz"]
CMD ["python", "-m", "worker"]
