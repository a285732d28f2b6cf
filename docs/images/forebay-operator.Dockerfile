# The same image as `cargo xtask image operator` makes without docker; build context: the folder of the static program.
FROM scratch
COPY forebay-operator /forebay-operator
USER 65532:65532
ENTRYPOINT ["/forebay-operator"]
