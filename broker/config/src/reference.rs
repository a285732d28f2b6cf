//! The page `docs/reference/config.md`, written from the table so that it cannot say anything else.

use std::fmt::Write as _;

use crate::{Definition, Dynamic, Kind, Unit, broker_definitions, topic_definitions};

/// The page as Markdown.
#[must_use]
pub fn reference_page() -> String {
    let mut page = String::from(
        "# Settings\n\n\
         Generated from `broker/config`; do not edit. Names, types and units are Kafka's; defaults too, unless the text says otherwise.\n\n\
         ## Topics\n\n\
         Each can be changed while the broker runs. Without a value of its own a topic takes the broker setting behind it.\n\n\
         | setting | type | default | value | behind it | what it does |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for definition in topic_definitions() {
        let behind: Vec<String> = definition.broker_names.iter().map(|(name, _)| format!("`{name}`")).collect();
        row(&mut page, definition, &behind.join(", "));
    }
    page.push_str(
        "\n## Brokers\n\n\
         `file`: only in the properties file, read at start. `running`: also by IncrementalAlterConfigs, for one broker or for all; `running, one broker`: for one only.\n\n\
         | setting | type | default | value | changed | what it does |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for definition in broker_definitions() {
        let changed = match definition.dynamic {
            Dynamic::ReadOnly => "file",
            Dynamic::PerBroker => "running, one broker",
            Dynamic::ClusterWide => "running",
        };
        row(&mut page, definition, changed);
    }
    page
}

fn row(page: &mut String, definition: &Definition, extra: &str) {
    let default = match definition.default {
        None => "none".to_owned(),
        Some("") => "empty".to_owned(),
        Some(text) => format!("`{text}`"),
    };
    let wanted = definition.wanted().replace('|', "\\|");
    let (name, kind, unit, doc) = (definition.name, kind(definition.kind), unit(definition.unit), definition.doc);
    // Writing to a String cannot fail.
    let _ = writeln!(page, "| `{name}` | {kind} | {default}{unit} | {wanted} | {extra} | {doc} |");
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Boolean => "boolean",
        Kind::String => "string",
        Kind::Short => "short",
        Kind::Int => "int",
        Kind::Long => "long",
        Kind::Double => "double",
        Kind::List => "list",
    }
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::None => "",
        Unit::Bytes => " bytes",
        Unit::Milliseconds => " ms",
        Unit::Minutes => " min",
        Unit::Hours => " h",
    }
}

#[cfg(test)]
mod tests {
    use super::reference_page;

    #[test]
    fn the_page_in_docs_is_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
            std::fs::write(path, reference_page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == reference_page(),
            "docs/reference/config.md is stale: UPDATE=1 cargo test -p forebay-broker-config rewrites it"
        );
    }
}
