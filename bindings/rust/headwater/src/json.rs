//! JSON, as a saved state has it: only as much as that needs.
#![forbid(unsafe_code)]

use std::fmt::Write;

use crate::error::{Error, Result};

/// A JSON value. Numbers are equal by what they are, 1 and 1.0 too.
#[derive(Clone, Debug)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl PartialEq for Json {
    fn eq(&self, other: &Json) -> bool {
        match (self, other) {
            (Json::Null, Json::Null) => true,
            (Json::Bool(a), Json::Bool(b)) => a == b,
            (Json::Int(a), Json::Int(b)) => a == b,
            (Json::Float(a), Json::Float(b)) => a == b,
            (Json::Int(a), Json::Float(b)) | (Json::Float(b), Json::Int(a)) => *a as f64 == *b,
            (Json::Text(a), Json::Text(b)) => a == b,
            (Json::List(a), Json::List(b)) => a == b,
            (Json::Object(a), Json::Object(b)) => {
                a.len() == b.len()
                    && a.iter().all(|(name, value)| other.get(name) == Some(value))
                    && b.iter().all(|(name, _)| self.get(name).is_some())
            }
            _ => false,
        }
    }
}

macro_rules! json_from {
    ($($kind:ty)+) => { $(
        impl From<$kind> for Json {
            fn from(number: $kind) -> Json {
                Json::Int(i128::from(number))
            }
        }
    )+ };
}
json_from! { u8 u32 i32 u64 i64 }

impl From<f64> for Json {
    fn from(number: f64) -> Json {
        Json::Float(number)
    }
}

impl Json {
    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) names the byte that is not JSON.
    pub(crate) fn read(text: &str) -> Result<Json> {
        let mut reader = Reader { text: text.as_bytes(), at: 0, depth: 0 };
        let value = reader.value()?;
        reader.skip_blanks();
        if reader.at < reader.text.len() { Err(reader.fault()) } else { Ok(value) }
    }

    pub(crate) fn text(text: &str) -> Json {
        Json::Text(text.to_owned())
    }

    pub(crate) fn list<T: Into<Json>>(values: impl IntoIterator<Item = T>) -> Json {
        Json::List(values.into_iter().map(Into::into).collect())
    }

    /// A number, or null if the library chooses it.
    pub(crate) fn chosen(is_given: bool, number: impl Into<Json>) -> Json {
        if is_given { number.into() } else { Json::Null }
    }

    pub(crate) fn object<'n>(members: impl IntoIterator<Item = (&'n str, Json)>) -> Json {
        Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Those of an object; else none.
    pub(crate) fn members(&self) -> &[(String, Json)] {
        match self {
            Json::Object(members) => members,
            _ => &[],
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        self.members().iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Int(number) => write!(out, "{number}").expect("a String can be written"),
            Json::Float(number) => write!(out, "{number:?}").expect("a String can be written"),
            Json::Text(text) => write_text(text, out),
            Json::List(values) => {
                out.push('[');
                for (place, value) in values.iter().enumerate() {
                    out.push_str(if place > 0 { ", " } else { "" });
                    value.write(out);
                }
                out.push(']');
            }
            Json::Object(members) => {
                out.push('{');
                for (place, (name, value)) in members.iter().enumerate() {
                    out.push_str(if place > 0 { ", " } else { "" });
                    write_text(name, out);
                    out.push_str(": ");
                    value.write(out);
                }
                out.push('}');
            }
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            other if (other as u32) < 32 => {
                write!(out, "\\u{:04x}", other as u32).expect("a String can be written");
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

const MOST_DEPTH: u32 = 64;

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
    depth: u32,
}

impl Reader<'_> {
    fn fault(&self) -> Error {
        Error::bad_argument(format!("the state is no JSON at byte {}", self.at))
    }

    fn skip_blanks(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// The next byte after blanks, which is not consumed.
    fn peek(&mut self) -> Result<u8> {
        self.skip_blanks();
        self.text.get(self.at).copied().ok_or_else(|| self.fault())
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.peek()? != byte {
            return Err(self.fault());
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return Err(self.fault());
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self) -> Result<Json> {
        match self.peek()? {
            b'{' => {
                let mut members = Vec::new();
                self.items(b'{', b'}', |reader| {
                    reader.skip_blanks();
                    let name = reader.string()?;
                    reader.expect(b':')?;
                    members.push((name, reader.value()?));
                    Ok(())
                })?;
                Ok(Json::Object(members))
            }
            b'[' => {
                let mut values = Vec::new();
                self.items(b'[', b']', |reader| {
                    values.push(reader.value()?);
                    Ok(())
                })?;
                Ok(Json::List(values))
            }
            b'"' => self.string().map(Json::Text),
            b'n' => self.word("null", Json::Null),
            b't' => self.word("true", Json::Bool(true)),
            b'f' => self.word("false", Json::Bool(false)),
            _ => self.number(),
        }
    }

    fn items(
        &mut self,
        open: u8,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        self.expect(open)?;
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(self.fault());
        }
        if self.peek()? != close {
            loop {
                item(self)?;
                if self.peek()? != b',' {
                    break;
                }
                self.at += 1;
            }
        }
        self.depth -= 1;
        self.expect(close)
    }

    fn number(&mut self) -> Result<Json> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        let word = std::str::from_utf8(&rest[..length]).map_err(|_| self.fault())?;
        let value = match word.parse::<i128>() {
            Ok(number) => Json::Int(number),
            Err(_) => Json::Float(word.parse().map_err(|_| self.fault())?),
        };
        self.at += length;
        Ok(value)
    }

    fn string(&mut self) -> Result<String> {
        if self.text.get(self.at) != Some(&b'"') {
            return Err(self.fault());
        }
        self.at += 1;
        let mut found = Vec::new();
        loop {
            match self.text.get(self.at).copied() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    let character = self.escaped()?;
                    found.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) if byte >= 32 => {
                    found.push(byte);
                    self.at += 1;
                }
                _ => return Err(self.fault()),
            }
        }
        self.at += 1;
        String::from_utf8(found).map_err(|_| self.fault())
    }

    /// The character of an escape, behind its backslash.
    fn escaped(&mut self) -> Result<char> {
        let kind = self.text.get(self.at).copied().ok_or_else(|| self.fault())?;
        self.at += 1;
        Ok(match kind {
            b'"' | b'\\' | b'/' => kind as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex()?;
                let mut units = vec![first];
                if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    units.push(self.hex()?);
                }
                let mut characters = char::decode_utf16(units);
                characters.next().and_then(|found| found.ok()).ok_or_else(|| self.fault())?
            }
            _ => return Err(self.fault()),
        })
    }

    fn hex(&mut self) -> Result<u16> {
        let digits = self.text.get(self.at..self.at + 4).ok_or_else(|| self.fault())?;
        let digits = std::str::from_utf8(digits).map_err(|_| self.fault())?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(self.fault());
        }
        let unit = u16::from_str_radix(digits, 16).map_err(|_| self.fault())?;
        self.at += 4;
        Ok(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_as_it_is_written() {
        let text =
            r#"{"a": [1, -2.5, 18446744073709551615, null, true], "b\"\\": {"c": "é\u0001"}}"#;
        let value = Json::read(text).unwrap();
        assert_eq!(value.to_text(), text);
        assert_eq!(Json::read(&value.to_text()).unwrap(), value);
        let spaced = " { \"x\" :\n[ ] , \"y\": \"\\ud83d\\ude00\\/\\n\" } ";
        assert_eq!(Json::read(spaced).unwrap().get("y"), Some(&Json::text("😀/\n")));
        assert_eq!(Json::Int(1), Json::Float(1.0));
    }

    #[test]
    fn what_is_no_json_is_named_by_its_byte() {
        for (text, byte) in [
            ("", 0),
            ("{", 1),
            ("{\"a\" 1}", 5),
            ("[1, 2", 5),
            ("[1] 2", 4),
            ("\"\\x\"", 3),
            ("nul", 0),
            ("{\"a\": -}", 6),
            ("\"\\ud83d\"", 7),
            ("[1,]", 3),
        ] {
            let error = Json::read(text).unwrap_err();
            assert_eq!(error.message(), format!("the state is no JSON at byte {byte}"), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(Json::read(&deep).unwrap_err().message().contains("byte"));
    }
}
