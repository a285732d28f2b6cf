//! Kafka-style properties text ⇄ settings: `name=value` lines, `#` and `!` comments, a backslash continues a line.
//!
//! What is rendered parses back to the same settings.

use crate::{ConfigError, ConfigErrors, Settings};

/// Reads properties text. Every bad line is reported, not only the first.
///
/// # Errors
/// Lines that are not `name=value`, and names given twice.
pub fn parse_properties(text: &str) -> Result<Settings, ConfigErrors> {
    let mut settings = Settings::new();
    let mut errors = Vec::new();
    for (line, logical) in logical_lines(text) {
        let trimmed = logical.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', '!']) {
            continue;
        }
        match trimmed.split_once(['=', ':']).map(|(name, value)| (name.trim(), value.trim())) {
            Some((name, value)) if !name.is_empty() => {
                if settings.insert(name.to_owned(), unescape(value)).is_some() {
                    errors.push(ConfigError::Twice { line, name: name.to_owned() });
                }
            }
            _ => errors.push(ConfigError::Syntax { line, text: trimmed.to_owned() }),
        }
    }
    if errors.is_empty() { Ok(settings) } else { Err(ConfigErrors(errors)) }
}

/// Renders settings as properties text, one a line, in the order of their names.
#[must_use]
pub fn render_properties(settings: &Settings) -> String {
    settings.iter().map(|(name, value)| format!("{name}={}\n", escape(value))).collect()
}

/// Joins lines that end in an odd number of backslashes; gives each with the number of its first line.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let continues = line.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1 && !line.starts_with('#');
        let body = if continues { &line[..line.len() - 1] } else { line };
        match lines.last_mut() {
            Some((_, last)) if open => last.push_str(body.trim_start()),
            _ => lines.push((index + 1, body.to_owned())),
        }
        open = continues;
    }
    lines
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\n', "\\n")
}

fn unescape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some(other)) | (other, _) => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comments_blank_lines_and_continuations_are_understood() {
        let settings = parse_properties("# note\n\n a.b = 1\nlist=x,\\\n   y\n!other\n").unwrap();
        assert_eq!(settings.get("a.b").map(String::as_str), Some("1"));
        assert_eq!(settings.get("list").map(String::as_str), Some("x,y"));
    }

    #[test]
    fn every_bad_line_is_named() {
        let errors = parse_properties("a=1\nnonsense\na=2\n").unwrap_err();
        assert_eq!(
            errors.to_string(),
            "line 2: 'nonsense': must be name=value; line 3: a is given twice: keep one of the lines"
        );
    }

    proptest! {
        #[test]
        fn what_is_rendered_parses_back(settings in proptest::collection::btree_map("[a-z][a-z.]{0,12}", "([!-~]([ -~]{0,20}[!-~])?)?", 0..8)) {
            prop_assert_eq!(parse_properties(&render_properties(&settings)).unwrap(), settings);
        }
    }
}
