//! Where the streams of a sampler stand, as JSON: the document of Python's `state_dict`.
#![forbid(unsafe_code)]

use std::fmt::Write;

use headwater_sys as sys;

use crate::error::{Error, Result};
use crate::ffi;
use crate::option_table::deciding;
use crate::options::{Options, Resolved};
use crate::sampler::{Sampler, Split};
use crate::store::Store;

/// Of Python's `Sampler.state_dict`.
const VERSION: u32 = 3;
/// Of masked cells, if none is given: Python's.
const MASK_RATIO: f64 = 0.15;
const STREAMS: [(&str, Split); 2] = [("train", Split::Train), ("val", Split::Val)];

/// Where the streams of a [`Sampler`] stand. A run that is saved in Rust continues in Python, and
/// the other way round: the JSON is that of Python's `Sampler.state_dict()`.
#[derive(Clone, Debug, PartialEq)]
pub struct State(Json);

impl State {
    /// The JSON, in one line.
    pub fn to_json(&self) -> String {
        let mut text = String::new();
        self.0.write(&mut text);
        text
    }

    /// A state from its JSON. [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) names the
    /// byte that is no JSON.
    pub fn from_json(text: &str) -> Result<State> {
        let mut reader = Reader { text: text.as_bytes(), at: 0, depth: 0 };
        let value = reader.value()?;
        reader.skip_blanks();
        if reader.at < reader.text.len() { Err(reader.fault()) } else { Ok(State(value)) }
    }
}

impl Sampler {
    /// Where its streams stand: batches that were handed out count, those made ahead do not.
    ///
    /// It may be loaded with another batch size, rank or number of threads, and with
    /// [`Shard::Dealt`](crate::Shard::Dealt) with another world size.
    pub fn state(&self) -> Result<State> {
        let mut streams = Vec::new();
        for (name, split) in STREAMS {
            let (positions, batches) =
                ffi::position(&self.handle, split, self.facts.position_count)?;
            let by_name = self.facts.seeds.iter().map(|(name, number)| {
                (name.clone(), Json::Int(i128::from(positions[*number as usize])))
            });
            let stream = vec![
                ("positions".to_owned(), Json::Object(by_name.collect())),
                ("batches".to_owned(), Json::Int(i128::from(batches))),
            ];
            streams.push((name.to_owned(), Json::Object(stream)));
        }
        Ok(State(Json::Object(vec![
            ("version".to_owned(), Json::from(VERSION)),
            ("fingerprint".to_owned(), Json::text(&self.store().fingerprint())),
            ("options".to_owned(), Json::Object(self.facts.deciding.clone())),
            ("streams".to_owned(), Json::Object(streams)),
        ])))
    }

    /// Continues where a state was taken, and drops what was made ahead.
    /// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) names all that differs: the store,
    /// or options that decide contexts.
    pub fn load_state(&self, state: &State) -> Result<()> {
        let version = state.0.get("version");
        if version != Some(&Json::from(VERSION)) {
            let found = version.map_or("none".to_owned(), Json::to_text);
            let message = format!("the state has version {found}, expected {VERSION}");
            return Err(Error::bad_argument(message));
        }
        let Some(Json::Object(saved)) = state.0.get("options") else {
            return Err(not_whole("options"));
        };
        let mut faults = Vec::new();
        let (before, now) = (state.0.get("fingerprint"), Json::text(&self.store().fingerprint()));
        if before != Some(&now) {
            let before = before.map_or("none".to_owned(), Json::to_text);
            faults.push(format!("store {before} is now {}", now.to_text()));
        }
        let mut names: Vec<&String> =
            saved.iter().chain(&self.facts.deciding).map(|(k, _)| k).collect();
        names.sort();
        names.dedup();
        for name in names {
            let of = |options: &[(String, Json)]| {
                options
                    .iter()
                    .find(|(other, _)| other == name)
                    .map_or(Json::Null, |(_, v)| v.clone())
            };
            let (before, now) = (of(saved), of(&self.facts.deciding));
            if before != now {
                let (before, now) = (before.to_text(), now.to_text());
                faults.push(format!("{name} was {before} and is {now}"));
            }
        }
        if !faults.is_empty() {
            let faults = faults.join("; ");
            return Err(Error::bad_argument(format!("the state is of another sampler: {faults}")));
        }
        let mut places = Vec::new();
        for (name, split) in STREAMS {
            let stream = state.0.get("streams").and_then(|streams| streams.get(name));
            let stream = stream.ok_or_else(|| not_whole(name))?;
            let mut positions = vec![0; self.facts.position_count];
            for (task, number) in &self.facts.seeds {
                let found = stream.get("positions").and_then(|positions| positions.get(task));
                positions[*number as usize] = natural(task, found)?;
            }
            let step = self.facts.step;
            if positions.iter().any(|position| position % step != 0) {
                return Err(Error::bad_argument(format!(
                    "the state is not whole: positions of '{name}' are {positions:?}, expected \
                     multiples of world_size, {step}"
                )));
            }
            places.push((split, positions, natural("batches", stream.get("batches"))?));
        }
        for (split, positions, batches) in places {
            ffi::set_position(&self.handle, split, &positions, batches)?;
        }
        Ok(())
    }
}

/// What a sampler was opened with.
pub(crate) struct Facts {
    /// Its tasks, or seed tables, with the numbers by which C knows them; ascending.
    pub(crate) seeds: Vec<(String, u32)>,
    /// Positions of a stream: of the store's tasks, and with seed tables of its tables.
    position_count: usize,
    /// Of which a position is a multiple: the world size of fixed shards.
    step: u64,
    /// The options that decide contexts, as Python's `Sampler` keeps them.
    deciding: Vec<(String, Json)>,
}

impl Facts {
    pub(crate) fn new(
        sampler: &ffi::SamplerHandle,
        store: &Store,
        options: &Options,
        raw: &sys::hw_sampler_options,
        resolved: Resolved<'_>,
    ) -> Result<Facts> {
        let (counts, shape) = (store.counts()?, ffi::shape(sampler)?);
        let (values, names) = (resolved.values, resolved.seeds.iter().map(|(name, _)| name));
        let (mut found, world_size) = (deciding(raw), raw.world_size.max(1));
        let visible_until = values.visible_until.unwrap_or([i64::MAX; 3]);
        let masks = raw.objective != sys::HW_OBJECTIVE_TASK || raw.mask_ratio > 0.0;
        let mask_ratio = if raw.mask_ratio > 0.0 { raw.mask_ratio } else { MASK_RATIO };
        let by_name = |weights: &Vec<f64>| {
            let weights = weights.iter().map(|weight| Json::from(*weight));
            Json::Object(names.clone().cloned().zip(weights).collect())
        };
        let lengths = if raw.packing != 0 {
            ["context_length", "max_context_rows"]
        } else {
            ["default_sequence_length", "max_rows"]
        };
        let is_stale = raw.staleness_max_days > 0.0;
        let stale = Json::list([raw.staleness_zero_share, raw.staleness_max_days]);
        let texts = shape.text_budget.saturating_sub(1) / shape.contexts_per_batch.max(1);
        found.extend([
            ("visible_until", Json::list(visible_until)),
            ("time_split", values.time_split.map_or(Json::Null, Json::list)),
            ("staleness", if is_stale { stale } else { Json::Null }),
            (lengths[0], Json::from(shape.context_length)),
            (lengths[1], Json::from(shape.max_context_rows)),
            ("texts_per_sequence", Json::chosen(shape.text_budget > 0, texts)),
            ("tasks", Json::List(names.clone().map(|name| Json::text(name)).collect())),
            ("task_weights", resolved.weights.as_ref().map_or(Json::Null, by_name)),
            ("seed_tables", Json::Bool(options.has_seed_tables())),
            ("mask_ratio", Json::chosen(masks, mask_ratio)),
            ("max_targets_per_type", Json::chosen(masks, shape.max_targets_per_type)),
        ]);
        if raw.layout == sys::HW_LAYOUT_FLAT {
            let contexts = u64::from(shape.batch_size) * u64::from(world_size);
            found.extend([
                ("level_block", Json::from(raw.level_block)),
                ("level_parts", Json::from(raw.level_parts)),
                ("contexts_of_all_ranks", Json::from(contexts)),
            ]);
        }
        if raw.shard == sys::HW_SHARD_FIXED {
            found.push(("world_size", Json::from(world_size)));
        }
        let tables = if options.has_seed_tables() { counts.tables } else { 0 };
        Ok(Facts {
            seeds: resolved.seeds,
            position_count: (counts.tasks + tables) as usize,
            step: if raw.shard == sys::HW_SHARD_FIXED { world_size.into() } else { 1 },
            deciding: found.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        })
    }
}

fn not_whole(name: &str) -> Error {
    Error::bad_argument(format!("the state is not whole: it lacks '{name}'"))
}

fn natural(name: &str, found: Option<&Json>) -> Result<u64> {
    match found {
        Some(Json::Int(number)) => u64::try_from(*number).map_err(|_| {
            Error::bad_argument(format!("the state is not whole: '{name}' is {number}"))
        }),
        _ => Err(not_whole(name)),
    }
}

// ---- JSON ----------------------------------------------------------------------------------

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

    fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => {
                members.iter().find(|(other, _)| other == name).map(|(_, v)| v)
            }
            _ => None,
        }
    }

    fn to_text(&self) -> String {
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
        let state = State::from_json(text).unwrap();
        assert_eq!(state.to_json(), text);
        assert_eq!(State::from_json(&state.to_json()).unwrap(), state);
        let spaced = " { \"x\" :\n[ ] , \"y\": \"\\ud83d\\ude00\\/\\n\" } ";
        assert_eq!(State::from_json(spaced).unwrap().0.get("y"), Some(&Json::text("😀/\n")));
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
            let error = State::from_json(text).unwrap_err();
            assert_eq!(error.message(), format!("the state is no JSON at byte {byte}"), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(State::from_json(&deep).unwrap_err().message().contains("byte"));
    }
}
