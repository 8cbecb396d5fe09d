# syntax=docker/dockerfile:1
# Kiln from source, for people who build images with an engine:
#
#     docker build --tag registry.example.com/kiln:0.2.0 .
#
# `cargo xtask dist` makes the published image, for amd64 and arm64, without an engine and with the same bytes each time.

# It brings a C compiler, musl and certificate authorities.
FROM rust:1.95-alpine AS build
WORKDIR /kiln
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/kiln/target \
    RUSTUP_TOOLCHAIN="$RUST_VERSION" cargo build --locked --profile dist --package kiln --bin kiln \
    && install -D target/dist/kiln /image/usr/local/bin/kiln \
    && install -D -m 644 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt \
    && install -d -m 1777 /image/tmp \
    && printf 'root:x:0:0:root:/:/sbin/nologin\nkiln:x:65532:65532:kiln:/tmp:/sbin/nologin\n' > /image/etc/passwd \
    && printf 'root:x:0:\nkiln:x:65532:\n' > /image/etc/group

FROM scratch
COPY --from=build /image /
ENV PATH=/usr/local/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/kiln"]
