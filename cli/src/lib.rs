//! forebay: runs the same manifests without Kubernetes, and scriptable commands.
