# The same image as `cargo xtask image cli` makes without docker; build context: the folder of the static program.
FROM scratch
COPY forebay /forebay
USER 65532:65532
ENTRYPOINT ["/forebay"]
