//! What the tests on a real Kubernetes cluster share. `cargo xtask e2e` brings the cluster up and runs them.
//!
//! What must hold: a story has a namespace of its own and can run beside the others; it waits for what it expects with a
//! limit and says what it saw last; it ends by proving that its namespace really goes.

pub mod chart;
pub mod conditions;
pub mod dashboards;
pub mod helm;
pub mod kafka;
pub mod load;
pub mod nodes;
pub mod outside;
pub mod pod;
pub mod prometheus;
pub mod story;

pub use pod::Pod;
pub use story::{Story, tell};

/// The image of that name in the version under test, as `cargo xtask image` tags it.
pub fn image(name: &str) -> String {
    format!("{name}:{}", env!("CARGO_PKG_VERSION"))
}

/// The same program as an image of another name and digest, to upgrade to and back; packed by `cargo xtask e2e --all`.
pub fn next_image(name: &str) -> String {
    format!("{name}:{NEXT}")
}

/// The tag of [`next_image`].
pub const NEXT: &str = "e2e-next";

/// The image with Debian's kcat, a client that is not ours; packed by `cargo xtask e2e`.
pub const KCAT: &str = "forebay.local/kcat:e2e";

/// The namespace that the operator is installed in.
pub const OPERATOR_NAMESPACE: &str = "forebay-system";

/// The project's root folder.
pub fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where the cluster comes from, in the words of `cargo xtask e2e --provider`.
pub fn provider() -> String {
    std::env::var("FOREBAY_E2E_PROVIDER").unwrap_or_else(|_| "unknown".to_owned())
}
