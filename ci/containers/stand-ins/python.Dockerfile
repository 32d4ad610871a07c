# Debian with the Python of the environment, whose folder is the context. Debian's own is too old.
# hadolint ignore=DL3006
FROM bessemer-stand-in-debian
COPY . /usr/local/
RUN ldconfig && python3.11 -m ensurepip --default-pip && ln -sf python3.11 /usr/local/bin/python && ln -sf python3.11 /usr/local/bin/python3
