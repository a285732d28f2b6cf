//! Tests on a real Kubernetes cluster.
