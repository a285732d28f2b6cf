//! `decode` of a struct.

use std::fmt::Write as _;

use anyhow::Result;

use super::super::spec::Type;
use super::{Emitter, Member, codec_name};

impl<'a> Emitter<'a> {
    pub(super) fn emit_decode(
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
                let method = if member.tag.is_some() { "tagged_struct_opt" } else { "struct_opt" };
                format!("d.{method}(\"{}\", |d| {}::decode(d, version))?", member.path, self.rust_name(name))
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
}
