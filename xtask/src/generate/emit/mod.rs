//! One specification as Rust: its structs, their defaults, `decode` and `encode`. The code is plain and flat on purpose: it is read
//! when a client misbehaves. Formatting is left to rustfmt.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

mod decode;
mod defaults;
mod encode;
mod error_codes;
mod names;

use defaults::is_natural_default;
use names::escape;
pub(super) use names::snake;

use super::spec::{Field, Kind, Spec, Type, Versions};

/// Writes the structs of one message.
pub(super) struct Emitter<'a> {
    spec: &'a Spec,
    valid: Versions,
    flexible: Versions,
    /// Specification name → Rust name, where they differ.
    renames: &'a BTreeMap<String, String>,
    structs: BTreeMap<&'a str, &'a [Field]>,
}

/// A field of a struct, as the message's valid versions leave it.
struct Member<'a> {
    field: &'a Field,
    ident: String,
    /// What errors call it.
    path: String,
    kind: Type,
    versions: Versions,
    nullable: Versions,
    tag: Option<u32>,
}

impl Member<'_> {
    fn is_option(&self) -> bool {
        !self.nullable.is_empty()
    }
}

impl<'a> Emitter<'a> {
    pub(super) fn new(spec: &'a Spec, renames: &'a BTreeMap<String, String>) -> Result<Self> {
        let mut emitter =
            Self { spec, valid: spec.versions()?, flexible: spec.flexible()?, renames, structs: BTreeMap::new() };
        for common in &spec.common_structs {
            emitter.structs.insert(&common.name, &common.fields);
            emitter.collect(&common.fields);
        }
        emitter.collect(&spec.fields);
        Ok(emitter)
    }

    fn collect(&mut self, fields: &'a [Field]) {
        for field in fields.iter().filter(|field| !field.fields.is_empty()) {
            self.structs.insert(field.struct_name(), &field.fields);
            self.collect(&field.fields);
        }
    }

    /// The names of all structs beside the message itself.
    pub(super) fn struct_names(&self) -> impl Iterator<Item = &'a str> + '_ {
        self.structs.keys().copied()
    }

    /// The message and its structs; `implements` is the trait impl's head and constants.
    pub(super) fn emit(&self, implements: &str) -> Result<String> {
        let mut out = String::new();
        self.emit_struct(&mut out, &self.spec.name, &self.spec.fields, Some(implements))?;
        for (name, fields) in &self.structs {
            self.emit_struct(&mut out, name, fields, None)?;
        }
        Ok(out)
    }

    fn rust_name(&self, name: &str) -> String {
        self.renames.get(name).cloned().unwrap_or_else(|| name.to_owned())
    }

    fn members(&self, struct_name: &str, fields: &'a [Field]) -> Result<Vec<Member<'a>>> {
        let mut members = Vec::new();
        for field in fields {
            let versions = field.versions()?.intersection(self.valid);
            if versions.is_empty() {
                continue; // only in versions that the protocol has dropped
            }
            let ident = snake(&field.name);
            members.push(Member {
                path: format!("{}.{ident}", self.rust_name(struct_name)),
                ident: escape(&ident),
                kind: field.type_of()?,
                versions,
                nullable: field.nullable()?.intersection(versions),
                tag: field.tag,
                field,
            });
        }
        Ok(members)
    }

    fn emit_struct(&self, out: &mut String, name: &str, fields: &'a [Field], implements: Option<&str>) -> Result<()> {
        let members = self.members(name, fields).with_context(|| format!("struct {name}"))?;
        let rust_name = self.rust_name(name);
        let natural = members.iter().all(|member| is_natural_default(member));
        match implements {
            Some(_) => writeln!(out, "/// {name}, versions {}.", self.valid)?,
            None => writeln!(out, "/// Part of [`{}`].", self.spec.name)?,
        }
        writeln!(out, "#[derive(Clone, Debug, PartialEq{})]", if natural { ", Default" } else { "" })?;
        writeln!(out, "pub struct {rust_name} {{")?;
        for member in &members {
            if let Some(remark) = self.remark(member) {
                writeln!(out, "/// {remark}")?;
            }
            writeln!(out, "pub {}: {},", member.ident, self.rust_type(member))?;
        }
        writeln!(out, "}}\n")?;
        if !natural {
            writeln!(out, "impl Default for {rust_name} {{ fn default() -> Self {{ Self {{")?;
            for member in &members {
                writeln!(out, "{}: {},", member.ident, self.default_value(member)?)?;
            }
            writeln!(out, "}} }} }}\n")?;
        }
        let public = if implements.is_some() { "" } else { "pub " };
        match implements {
            Some(head) => writeln!(out, "{head}")?,
            None => writeln!(out, "impl {rust_name} {{")?,
        }
        let doc = |text: &str| if implements.is_none() { format!("/// {text}\n") } else { String::new() };
        *out += &doc("Reads the struct as `version` has it.");
        self.emit_decode(out, &rust_name, public, implements.is_some(), &members)?;
        *out += &doc("Writes the struct as `version` has it.");
        self.emit_encode(out, &rust_name, public, implements.is_some(), &members)?;
        if self.spec.kind == Kind::Response && self.has_error_code(fields) {
            *out += &doc("Calls `f` with every error code that is not 0.");
            self.emit_error_codes(out, public, &members)?;
        }
        writeln!(out, "}}\n")?;
        Ok(())
    }

    /// The facts about a field that its type does not say.
    fn remark(&self, member: &Member<'_>) -> Option<String> {
        let mut facts = Vec::new();
        if !member.versions.contains(self.valid) {
            facts.push(format!("Versions {}", open_ended(member.versions, self.valid)));
        }
        if let Some(tag) = member.tag {
            facts.push(format!("tag {tag}"));
        }
        if member.is_option() && !member.nullable.contains(member.versions) {
            facts.push(format!("nullable in {}", open_ended(member.nullable, self.valid)));
        }
        if let Some(default) = member.field.default_text().filter(|_| !is_natural_default(member)) {
            facts.push(format!("default {default}"));
        }
        let text = facts.join(", ");
        let mut letters = text.chars();
        letters.next().map(|first| first.to_uppercase().chain(letters).chain(['.']).collect())
    }

    fn base_type(&self, kind: &Type) -> String {
        match kind {
            Type::Bool => "bool".to_owned(),
            Type::Number(name) => (*name).to_owned(),
            Type::String => "Str".to_owned(),
            Type::Bytes => "Bytes".to_owned(),
            Type::Records => "Records".to_owned(),
            Type::Uuid => "Uuid".to_owned(),
            Type::Struct(name) => self.rust_name(name),
            Type::Array(element) => format!("Vec<{}>", self.base_type(element)),
        }
    }

    fn rust_type(&self, member: &Member<'_>) -> String {
        let base = self.base_type(&member.kind);
        if member.is_option() { format!("Option<{base}>") } else { base }
    }

    /// A condition on `version`, or none if it always holds.
    fn condition(&self, versions: Versions, within: Versions) -> Option<String> {
        let lower = (versions.min > within.min).then(|| format!("version >= {}", versions.min));
        let upper = (versions.max < within.max).then(|| format!("version <= {}", versions.max));
        match (lower, upper) {
            (Some(_), Some(_)) if versions.min == versions.max => Some(format!("version == {}", versions.min)),
            (Some(_), Some(_)) => Some(format!("({}..={}).contains(&version)", versions.min, versions.max)),
            (one, other) => one.or(other),
        }
    }

    fn flex(&self) -> String {
        match self.condition(self.flexible, self.valid) {
            _ if self.flexible.is_empty() => "false".to_owned(),
            None => "true".to_owned(),
            Some(condition) => condition,
        }
    }

    /// Adds a function around `body`, with only the names it uses.
    fn function(&self, out: &mut String, signature: &str, coder: &str, prologue: &str, body: &str) -> Result<()> {
        let flex = self.flex();
        let body = match flex.as_str() {
            "true" | "false" => body.replace("flex", &flex),
            _ => body.to_owned(),
        };
        let flex_line = if body.contains("flex") { format!("let flex = {flex};\n") } else { String::new() };
        let all = format!("{prologue}{flex_line}{body}");
        let mut signature = signature.to_owned();
        let code: String = all.split('"').step_by(2).collect(); // without the string literals
        if !has_word(&code, "version") {
            signature = signature.replace("version: i16", "_version: i16");
        }
        if !has_word(&code, coder) {
            signature = signature.replace(&format!("{coder}: &mut"), &format!("_{coder}: &mut"));
        }
        writeln!(out, "{signature} {{\n{all}}}\n")?;
        Ok(())
    }
}

/// Whether `word` is in the code as a word of its own.
fn has_word(code: &str, word: &str) -> bool {
    code.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').any(|found| found == word)
}

fn codec_name(kind: &Type) -> &'static str {
    match kind {
        Type::Bool => "bool",
        Type::Number(name) => name,
        Type::String => "string",
        Type::Bytes => "bytes",
        Type::Records => "records",
        Type::Uuid => "uuid",
        Type::Struct(_) => "struct",
        Type::Array(_) => "array",
    }
}

fn open_ended(versions: Versions, valid: Versions) -> Versions {
    if versions.max == valid.max { Versions { max: i16::MAX, ..versions } } else { versions }
}
