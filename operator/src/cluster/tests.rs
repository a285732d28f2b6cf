//! Plans of YAML files.
