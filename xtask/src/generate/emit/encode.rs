//! `encode` of a struct.

use std::fmt::Write as _;

use anyhow::Result;

use super::super::spec::Type;
use super::{Emitter, Member, codec_name};

impl<'a> Emitter<'a> {
    pub(super) fn emit_encode(
        &self,
        out: &mut String,
        name: &str,
        public: &str,
        top: bool,
        members: &[Member<'_>],
    ) -> Result<()> {
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
            Type::Struct(_) if member.tag.is_some() => {
                format!("e.tagged_struct_opt({value}.as_ref(), |e, v| v.encode(e, version))?;")
            }
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
