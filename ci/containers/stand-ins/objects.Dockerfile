# An in-memory S3 store from PyPI.
FROM python:3.11-slim-bookworm
RUN python -m venv /opt/venv
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_certificates,target=/etc/ssl/certs/ca-certificates.crt \
    /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check 'moto[s3,server]>=5,<6'
COPY objects-server /usr/local/bin/
ENTRYPOINT ["objects-server"]
