//! The specification's names as Rust's.

/// `FooBarID` → `foo_bar_id`.
pub(in crate::generate) fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (index, &letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(index + 1);
        let starts_word = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                !before.is_ascii_uppercase() || after.is_some_and(|after| after.is_ascii_lowercase())
            });
        if starts_word && !out.ends_with('_') {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

pub(super) fn escape(ident: &str) -> String {
    match ident {
        "type" | "match" | "async" | "ref" | "move" | "where" | "use" | "final" => format!("r#{ident}"),
        _ => ident.to_owned(),
    }
}
