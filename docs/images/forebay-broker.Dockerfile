# The same image as `cargo xtask image broker` makes without docker; build context: the folder of the static program.
FROM scratch
COPY forebay-broker /forebay-broker
USER 65532:65532
ENTRYPOINT ["/forebay-broker"]
