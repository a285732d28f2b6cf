//! `for_each_error_code` of a response and its structs: so that errors are counted in one place, whatever the API.

use std::fmt::Write as _;

use anyhow::Result;

use super::super::spec::{Field, Type};
use super::{Emitter, Member};

const FIELD: &str = "error_code";

impl<'a> Emitter<'a> {
    /// Whether the fields, or structs in them, have an error code.
    pub(super) fn has_error_code(&self, fields: &'a [Field]) -> bool {
        fields.iter().any(|field| super::snake(&field.name) == FIELD || self.struct_has_error_code(field.struct_name()))
    }

    fn struct_has_error_code(&self, name: &str) -> bool {
        self.structs.get(name).is_some_and(|fields| self.has_error_code(fields))
    }

    /// The function for a struct that [`Emitter::has_error_code`].
    pub(super) fn emit_error_codes(&self, out: &mut String, public: &str, members: &[Member<'_>]) -> Result<()> {
        writeln!(out, "{public}fn for_each_error_code(&self, f: &mut dyn FnMut(i16)) {{")?;
        for member in members {
            let value = format!("self.{}", member.ident);
            match &member.kind {
                Type::Number("i16") if member.ident == FIELD => writeln!(out, "if {value} != 0 {{ f({value}); }}")?,
                Type::Struct(name) if self.struct_has_error_code(name) => {
                    if member.is_option() {
                        writeln!(out, "if let Some(v) = &{value} {{ v.for_each_error_code(f); }}")?;
                    } else {
                        writeln!(out, "{value}.for_each_error_code(f);")?;
                    }
                }
                Type::Array(element) if matches!(&**element, Type::Struct(name) if self.struct_has_error_code(name)) => {
                    let values =
                        if member.is_option() { format!("{value}.iter().flatten()") } else { format!("&{value}") };
                    writeln!(out, "for v in {values} {{ v.for_each_error_code(f); }}")?;
                }
                _ => {}
            }
        }
        writeln!(out, "}}\n")?;
        Ok(())
    }
}
