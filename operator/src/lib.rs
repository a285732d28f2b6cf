//! The operator: observe, plan, apply for each kind.
