# Debian's musl and busybox with the interface of the official alpine image: musl, /bin/sh and tar, no glibc, no Python.
# hadolint ignore=DL3006
FROM bessemer-stand-in-debian AS files
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --no-install-recommends --yes musl busybox-static && rm -rf /var/lib/apt/lists/* \
 && install -D /bin/busybox /alpine/bin/busybox \
 && install -D "$(realpath /lib/ld-musl-x86_64.so.1)" /alpine/lib/ld-musl-x86_64.so.1 \
 && chroot /alpine /bin/busybox --install -s /bin \
 && install -d -m 1777 /alpine/tmp

FROM scratch
COPY --from=files /alpine /
CMD ["/bin/sh"]
