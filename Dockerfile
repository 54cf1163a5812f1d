# The one binary of Dray; the command line says which service it is. `docker build -t dray:latest .`

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --locked --release --package dray

FROM debian:bookworm-slim
# Folders that become volumes belong to the service's account: a new volume takes over the owner it finds here.
RUN useradd --system --uid 7070 --user-group --home-dir /var/lib/dray --shell /usr/sbin/nologin dray \
    && install -d -o dray -g dray /var/lib/dray /var/lib/dray/node-agent /var/lib/kubelet/plugins_registry
COPY --from=build /src/target/release/dray /usr/local/bin/dray
USER dray
EXPOSE 7070 9464
ENTRYPOINT ["dray"]
CMD ["--help"]
