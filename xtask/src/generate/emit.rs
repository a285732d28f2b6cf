//! One specification as Rust: its structs, their defaults, `decode` and `encode`. The code is plain and flat on purpose: it is read
//! when a client misbehaves. Formatting is left to rustfmt.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::spec::{Field, Spec, Type, Versions};

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
        if implements.is_none() {
            writeln!(out, "/// Reads the struct as `version` has it.")?;
        }
        self.emit_decode(out, &rust_name, public, implements.is_some(), &members)?;
        if implements.is_none() {
            writeln!(out, "/// Writes the struct as `version` has it.")?;
        }
        self.emit_encode(out, &rust_name, public, implements.is_some(), &members)?;
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

    fn default_value(&self, member: &Member<'_>) -> Result<String> {
        if member.is_option() {
            return Ok(match &member.kind {
                _ if member.field.is_null_by_default() => "None".to_owned(),
                kind => format!("Some({})", self.empty_value(kind)),
            });
        }
        match (&member.kind, member.field.default_text()) {
            (Type::Number("f64"), text) => Ok(text.map_or("0.0".to_owned(), |text| format!("{text}.0"))),
            (Type::Number(_), Some(text)) => number(&text).with_context(|| format!("default of {}", member.path)),
            (Type::Bool, Some(text)) => Ok(text.to_lowercase()),
            (kind, _) => Ok(self.empty_value(kind)),
        }
    }

    fn empty_value(&self, kind: &Type) -> String {
        match kind {
            Type::Bool => "false".to_owned(),
            Type::Number(_) => "0".to_owned(),
            Type::String => "Str::new()".to_owned(),
            Type::Bytes => "Bytes::new()".to_owned(),
            Type::Records => "Records::empty()".to_owned(),
            Type::Uuid => "Uuid::ZERO".to_owned(),
            Type::Struct(name) => format!("{}::default()", self.rust_name(name)),
            Type::Array(_) => "Vec::new()".to_owned(),
        }
    }

    /// An expression that is true when the field has its default.
    fn is_default(&self, member: &Member<'_>) -> Result<String> {
        let value = format!("self.{}", member.ident);
        let empty = |of: &str| format!("{value}.as_ref().is_some_and({of}::is_empty)");
        Ok(match (&member.kind, member.is_option()) {
            (_, true) if member.field.is_null_by_default() => format!("{value}.is_none()"),
            (Type::String, true) => format!("{value}.as_deref().is_some_and(str::is_empty)"),
            (Type::Bytes, true) => empty("Bytes"),
            (Type::Array(_), true) => empty("Vec"),
            (_, true) => format!("{value} == {}", self.default_value(member)?),
            (Type::Bool, _) if self.default_value(member)? == "true" => value,
            (Type::Bool, _) => format!("!{value}"),
            (Type::String | Type::Bytes | Type::Records | Type::Array(_), _) => format!("{value}.is_empty()"),
            (Type::Uuid, _) => format!("{value}.is_zero()"),
            (Type::Number(_) | Type::Struct(_), _) => format!("{value} == {}", self.default_value(member)?),
        })
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

    fn emit_decode(&self, out: &mut String, name: &str, public: &str, top: bool, members: &[Member<'_>]) -> Result<()> {
        let mut prologue = String::new();
        if top {
            writeln!(
                prologue,
                "Decoder::check_version(\"{name}\", version, {}, {})?;",
                self.valid.min, self.valid.max
            )?;
        }
        let tagged: Vec<_> = members.iter().filter(|member| member.tag.is_some()).collect();
        let mut body = String::new();
        let mutable = if tagged.is_empty() { "" } else { "mut " };
        if self.flexible.is_empty() {
            write!(body, "Ok(Self {{")?;
        } else {
            write!(body, "let {mutable}this = Self {{")?;
        }
        for member in members {
            let value = if member.tag.is_some() {
                self.default_value(member)?
            } else {
                let read = self.read_nullable(member);
                match self.condition(member.versions, self.valid) {
                    None => read,
                    Some(condition) => {
                        format!("if {condition} {{ {read} }} else {{ {} }}", self.default_value(member)?)
                    }
                }
            };
            writeln!(body, "{}: {value},", member.ident)?;
        }
        if self.flexible.is_empty() {
            writeln!(body, "}})")?;
        } else {
            writeln!(body, "}};")?;
            let condition = if self.flexible.contains(self.valid) { "" } else { "if flex " };
            writeln!(body, "{condition}{{ {} }}", self.read_tagged(name, &tagged)?)?;
            writeln!(body, "Ok(this)")?;
        }
        let signature = format!("{public}fn decode(d: &mut Decoder, version: i16) -> Result<Self, DecodeError>");
        self.function(out, &signature, "d", &prologue, &body)
    }

    fn read_tagged(&self, name: &str, tagged: &[&Member<'_>]) -> Result<String> {
        if tagged.is_empty() {
            return Ok(format!("d.skip_tagged(\"{name}\")?;"));
        }
        let mut arms = String::new();
        for member in tagged {
            let guard =
                self.condition(member.versions, self.flexible).map_or(String::new(), |text| format!(" if {text}"));
            let tag = member.tag.unwrap_or_default();
            writeln!(arms, "{tag}{guard} => {{ this.{} = {}; }}", member.ident, self.read_nullable(member))?;
        }
        Ok(format!("d.tagged(\"{name}\", |tag, d| {{ match tag {{ {arms} _ => return Ok(false), }} Ok(true) }})?;"))
    }

    fn read_nullable(&self, member: &Member<'_>) -> String {
        if !member.is_option() {
            return format!("{}?", self.read(&member.kind, &member.path));
        }
        let opt = match &member.kind {
            Type::Struct(name) => {
                format!("d.struct_opt(\"{}\", |d| {}::decode(d, version))?", member.path, self.rust_name(name))
            }
            Type::Array(element) => self.read_array("array_opt", element, &member.path) + "?",
            kind => format!("d.{}_opt(flex, \"{}\")?", codec_name(kind), member.path),
        };
        match self.condition(member.nullable, member.versions) {
            None => opt,
            Some(condition) => {
                format!("if {condition} {{ {opt} }} else {{ Some({}?) }}", self.read(&member.kind, &member.path))
            }
        }
    }

    fn read(&self, kind: &Type, path: &str) -> String {
        match kind {
            Type::Bool | Type::Number(_) | Type::Uuid => format!("d.{}(\"{path}\")", codec_name(kind)),
            Type::String | Type::Bytes | Type::Records => format!("d.{}(flex, \"{path}\")", codec_name(kind)),
            Type::Struct(name) => format!("{}::decode(d, version)", self.rust_name(name)),
            Type::Array(element) => self.read_array("array", element, path),
        }
    }

    fn read_array(&self, method: &str, element: &Type, path: &str) -> String {
        format!("d.{method}(flex, \"{path}\", {}, |d| {})", self.least_bytes(element).max(1), self.read(element, path))
    }

    /// The fewest bytes a value can take in any version.
    fn least_bytes(&self, kind: &Type) -> usize {
        let flexible = !self.flexible.is_empty();
        match kind {
            Type::Bool | Type::Number("i8") => 1,
            Type::Number("i16" | "u16") => 2,
            Type::Number("i32" | "u32") => 4,
            Type::Number(_) => 8,
            Type::Uuid => 16,
            Type::String => {
                if flexible {
                    1
                } else {
                    2
                }
            }
            Type::Bytes | Type::Records | Type::Array(_) => {
                if flexible {
                    1
                } else {
                    4
                }
            }
            Type::Struct(name) => {
                let fields = self.structs.get(name.as_str()).copied().unwrap_or_default();
                let tags = usize::from(self.flexible.contains(self.valid));
                let members = self.members(name, fields).unwrap_or_default();
                let always =
                    members.iter().filter(|member| member.tag.is_none() && member.versions.contains(self.valid));
                tags + always
                    .map(|member| match &member.kind {
                        Type::Struct(_) if member.is_option() => 1,
                        kind => self.least_bytes(kind),
                    })
                    .sum::<usize>()
            }
        }
    }

    fn emit_encode(&self, out: &mut String, name: &str, public: &str, top: bool, members: &[Member<'_>]) -> Result<()> {
        let mut prologue = String::new();
        if top {
            writeln!(
                prologue,
                "Encoder::check_version(\"{name}\", version, {}, {})?;",
                self.valid.min, self.valid.max
            )?;
        }
        let mut body = String::new();
        for member in members.iter().filter(|member| member.tag.is_none()) {
            let write = self.write_nullable(member);
            let Some(condition) = self.condition(member.versions, self.valid) else {
                writeln!(body, "{write}")?;
                continue;
            };
            write!(body, "if {condition} {{ {write} }}")?;
            if !member.field.ignorable {
                write!(body, " else {{ {} }}", self.require_default(member)?)?;
            }
            writeln!(body)?;
        }
        if !self.flexible.is_empty() {
            body += &self.write_tagged(members)?;
        }
        writeln!(body, "Ok(())")?;
        let signature = format!("{public}fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError>");
        self.function(out, &signature, "e", &prologue, &body)
    }

    fn require_default(&self, member: &Member<'_>) -> Result<String> {
        Ok(format!("Encoder::require_default({}, \"{}\", version)?;", self.is_default(member)?, member.path))
    }

    fn write_tagged(&self, members: &[Member<'_>]) -> Result<String> {
        let mut tagged: Vec<_> = members.iter().filter_map(|member| member.tag.map(|tag| (tag, member))).collect();
        tagged.sort_by_key(|(tag, _)| *tag);
        let mut out = String::new();
        for (_, member) in &tagged {
            if let Some(condition) = self.condition(member.versions, self.valid).filter(|_| !member.field.ignorable) {
                writeln!(
                    out,
                    "Encoder::require_default({condition} || {}, \"{}\", version)?;",
                    self.is_default(member)?,
                    member.path
                )?;
            }
        }
        let always = self.flexible.contains(self.valid);
        if !always {
            writeln!(out, "if flex {{")?;
        }
        for (tag, member) in &tagged {
            let condition =
                self.condition(member.versions, self.flexible).map_or(String::new(), |text| format!("{text} && "));
            writeln!(out, "let tag_{tag} = {condition}{};", negated(&self.is_default(member)?))?;
        }
        let count = tagged.iter().map(|(tag, _)| format!("u32::from(tag_{tag})")).collect::<Vec<_>>().join(" + ");
        writeln!(out, "e.uvarint({});", if count.is_empty() { "0" } else { &count })?;
        for (tag, member) in &tagged {
            writeln!(out, "if tag_{tag} {{ e.tagged({tag}, |e| {{ {} Ok(()) }})?; }}", self.write_nullable(member))?;
        }
        if !always {
            writeln!(out, "}}")?;
        }
        Ok(out)
    }

    fn write_nullable(&self, member: &Member<'_>) -> String {
        let value = format!("self.{}", member.ident);
        let path = &member.path;
        if !member.is_option() {
            let value = match member.kind {
                Type::Bool | Type::Number(_) | Type::Uuid | Type::Struct(_) => value,
                _ => format!("&{value}"),
            };
            return self.write(&member.kind, &value, path);
        }
        let opt = match &member.kind {
            Type::Struct(_) => format!("e.struct_opt({value}.as_ref(), |e, v| v.encode(e, version))?;"),
            Type::Array(element) => self.write_array("array_opt", element, &format!("{value}.as_deref()"), path),
            Type::Records => format!("e.records_opt(flex, \"{path}\", {value}.as_ref())?;"),
            kind => format!("e.{}_opt(flex, \"{path}\", {value}.as_deref())?;", codec_name(kind)),
        };
        match self.condition(member.nullable, member.versions) {
            None => opt,
            Some(condition) => {
                let required = format!("Encoder::require(&{value}, \"{path}\", version)?");
                format!("if {condition} {{ {opt} }} else {{ {} }}", self.write(&member.kind, &required, path))
            }
        }
    }

    fn write(&self, kind: &Type, value: &str, path: &str) -> String {
        match kind {
            Type::Bool | Type::Number(_) | Type::Uuid => format!("e.{}({value});", codec_name(kind)),
            Type::String | Type::Bytes | Type::Records => {
                format!("e.{}(flex, \"{path}\", {value})?;", codec_name(kind))
            }
            Type::Struct(_) => format!("{value}.encode(e, version)?;"),
            Type::Array(element) => self.write_array("array", element, value, path),
        }
    }

    fn write_array(&self, method: &str, element: &Type, value: &str, path: &str) -> String {
        let body = match element {
            Type::Bool | Type::Number(_) | Type::Uuid => format!("{{ e.{}(*v); Ok(()) }}", codec_name(element)),
            Type::Struct(_) => "v.encode(e, version)".to_owned(),
            other => format!("e.{}(flex, \"{path}\", v)", codec_name(other)),
        };
        format!("e.{method}(flex, \"{path}\", {value}, |e, v| {body})?;")
    }
}

/// The opposite of a condition that [`Emitter::is_default`] gives.
fn negated(condition: &str) -> String {
    if let Some(value) = condition.strip_prefix('!') {
        value.to_owned()
    } else if let Some(value) = condition.strip_suffix(".is_none()") {
        format!("{value}.is_some()")
    } else if condition.contains(" == ") {
        condition.replace(" == ", " != ")
    } else {
        format!("!{condition}")
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

/// Whether Rust's own default is the specification's.
fn is_natural_default(member: &Member<'_>) -> bool {
    if member.is_option() {
        return member.field.is_null_by_default();
    }
    match (&member.kind, member.field.default_text().as_deref()) {
        (Type::Number(_), Some(text)) => number(text).is_ok_and(|value| value == "0"),
        (Type::Bool, Some(text)) => text.eq_ignore_ascii_case("false"),
        _ => true,
    }
}

/// A specification's number as a Rust literal.
fn number(text: &str) -> Result<String> {
    let value: i64 = match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16)?,
        None => text.parse()?,
    };
    Ok(match value {
        i64::MAX => "i64::MAX".to_owned(),
        value if value == i64::from(i32::MAX) => "i32::MAX".to_owned(),
        value if value == i64::from(i32::MIN) => "i32::MIN".to_owned(),
        value => value.to_string(),
    })
}

fn open_ended(versions: Versions, valid: Versions) -> Versions {
    if versions.max == valid.max { Versions { max: i16::MAX, ..versions } } else { versions }
}

/// `FooBarID` → `foo_bar_id`.
pub(super) fn snake(name: &str) -> String {
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

fn escape(ident: &str) -> String {
    match ident {
        "type" | "match" | "async" | "ref" | "move" | "where" | "use" | "final" => format!("r#{ident}"),
        _ => ident.to_owned(),
    }
}
