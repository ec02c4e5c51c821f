//! Why threads share: the objects, fields and functions behind the lines of a pair or a group.

use std::collections::BTreeMap;

use linewise_recording::{Pid, Tables, Tid};

use super::names::Names;
use super::paths::every_element;
use super::votes::Votes;
use crate::views::groups::{LineOf, PairSum, SharedObject};
use crate::views::sharing::{Place, SharingView};

/// Objects that are told.
const OBJECTS: usize = 3;
/// Fields and functions of an object that are told.
const PARTS: usize = 3;
/// Lines that are looked at: of many the strongest tell.
const LINES: usize = 64;

/// What lies on lines, and who touches it.
pub(crate) struct Sharers<'a> {
    names: Names<'a>,
    votes: Votes<'a>,
    places: BTreeMap<LineOf, &'a [Place]>,
}

/// What is known of an object so far.
#[derive(Default)]
struct Part<'a> {
    strength: f64,
    fields: BTreeMap<String, f64>,
    functions: BTreeMap<&'a str, f64>,
}

impl<'a> Sharers<'a> {
    pub(crate) fn new(view: &'a SharingView, tables: &'a Tables) -> Self {
        let names = Names::new(tables);
        let moving = view
            .lines
            .iter()
            .map(|it| ((it.pid, it.line), &it.places[..]));
        let turns = view
            .turns
            .iter()
            .map(|it| ((it.pid, it.line), &it.places[..]));
        Self {
            votes: Votes::new(tables, &names),
            places: moving.chain(turns).collect(),
            names,
        }
    }

    /// The objects behind what these threads share, the most first.
    pub(crate) fn why(&self, sum: &PairSum, is_of: impl Fn(Tid) -> bool) -> Vec<SharedObject> {
        let mut lines: Vec<(LineOf, f64)> =
            sum.lines.iter().map(|(&it, &part)| (it, part)).collect();
        lines.sort_by(|a, b| b.1.total_cmp(&a.1));
        let all: f64 = lines.iter().map(|(_, part)| part).sum();
        let mut parts: BTreeMap<String, Part<'_>> = BTreeMap::new();
        for ((pid, line), strength) in lines.into_iter().take(LINES) {
            let places = self.places.get(&(pid, line)).copied().unwrap_or_default();
            let own: Vec<&Place> = places.iter().filter(|place| is_of(place.tid)).collect();
            // Traps count a little, for accesses that are hardly ever sampled.
            let weight = |place: &Place| place.weight + place.traps as f64 + 1.0;
            let at_line: f64 = own.iter().map(|place| weight(place)).sum();
            for place in own {
                let strength = strength * weight(place) / at_line;
                let part = parts.entry(self.object(pid, place)).or_default();
                part.strength += strength;
                if let Some(field) = self.field(pid, place) {
                    *part.fields.entry(field).or_default() += strength;
                }
                let frames = self.names.frames(place.touch.pid, place.touch.ip);
                if let Some(frame) = frames.first().filter(|it| !it.function.is_empty()) {
                    *part.functions.entry(&frame.function).or_default() += strength;
                }
            }
        }
        let mut parts: Vec<(String, Part<'_>)> = parts.into_iter().collect();
        parts.sort_by(|a, b| b.1.strength.total_cmp(&a.1.strength));
        parts.truncate(OBJECTS);
        let told = |(object, part): (String, Part<'_>)| SharedObject {
            object,
            fields: listed(part.fields),
            functions: listed(part.functions),
            share: part.strength / all.max(f64::MIN_POSITIVE),
        };
        parts.into_iter().map(told).collect()
    }

    /// The object at a place, in words.
    fn object(&self, pid: Pid, place: &Place) -> String {
        let typed = self.votes.access(place.touch.pid, place.touch.ip);
        let type_name = typed.map_or("", |row| row.type_name.as_str());
        match self.names.object(pid, place.touch.address) {
            Some(object) if object.type_name.is_empty() && !type_name.is_empty() => {
                format!("{type_name} in {}", object.name)
            }
            Some(object) if !object.name.is_empty() => object.name.clone(),
            _ if !type_name.is_empty() => type_name.to_owned(),
            _ => "memory without a name".to_owned(),
        }
    }

    /// The field at a place; of an array that of every element.
    fn field(&self, pid: Pid, place: &Place) -> Option<String> {
        let object = self.names.object(pid, place.touch.address);
        let known = object.filter(|object| self.names.is_exact(object));
        let fields = known.map(|object| self.names.fields_in(object, place.touch.address, 1));
        let field = fields.and_then(|fields| fields.first().map(|field| field.path.clone()));
        let typed = || {
            self.votes
                .access(place.touch.pid, place.touch.ip)
                .map(|row| row.path.clone())
        };
        let path = field.or_else(typed).filter(|path| !path.is_empty())?;
        Some(every_element(&path))
    }
}

/// Names by what they stand for, the most first.
fn listed<N: AsRef<str>>(names: BTreeMap<N, f64>) -> String {
    let mut names: Vec<(N, f64)> = names.into_iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    let names = names.iter().take(PARTS).map(|(name, _)| name.as_ref());
    names.collect::<Vec<_>>().join(", ")
}
