# Debian's PostgreSQL with the interface of the official postgres image that docker-compose.yml uses.
FROM python:3.11-slim-bookworm
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --no-install-recommends --yes postgresql && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/*
COPY postgres-entrypoint /usr/local/bin/
RUN ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ 2>/dev/null || true
ENV PGDATA=/var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["postgres-entrypoint"]
