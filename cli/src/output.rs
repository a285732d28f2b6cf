//! What commands print: one JSON value for programs, or a table for people, on standard output. Nothing else goes there.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use crate::args::{Format, Output};

/// Long texts are wrapped in files and pipes too.
const WIDTH_WITHOUT_TERMINAL: u16 = 160;

/// A table with these columns.
pub(crate) fn table<const N: usize>(columns: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic).set_header(columns);
    if !table.is_tty() {
        table.set_width(WIDTH_WITHOUT_TERMINAL);
    }
    table
}

impl Output {
    /// Prints `value` as JSON, or what `table` makes of it.
    pub(crate) fn print<T: Serialize>(&self, value: &T, table: impl FnOnce(&T) -> Table) -> anyhow::Result<()> {
        match self.format {
            Format::Json => print(&serde_json::to_string_pretty(value)?),
            Format::Table => print(&table(value).to_string()),
        }
    }

    /// Prints `value` as JSON, or a sentence.
    pub(crate) fn say<T: Serialize>(&self, value: &T, sentence: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        match self.format {
            Format::Json => print(&serde_json::to_string_pretty(value)?),
            Format::Table => print(&sentence(value)),
        }
    }
}

/// Prints a line; a reader that went away, such as `head`, is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    use std::io::Write;
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
