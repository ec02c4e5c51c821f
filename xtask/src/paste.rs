//! What a finding prints to be pasted, put into the source of its program: in the place of the struct or member of that
//! name, and nothing else is changed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

/// The sources of a program, by name.
pub(crate) type Sources = BTreeMap<PathBuf, String>;

/// What is pasted, and what of.
pub(crate) struct Paste<'a> {
    pub(crate) source: &'a str,
    /// The type of the elements, as debug info names it.
    pub(crate) type_name: &'a str,
    /// The variable, without its namespaces.
    pub(crate) variable: &'a str,
}

/// Stands in for the crate of that name.
const CACHE_PADDED: &str = "
mod crossbeam_utils {
    #[repr(align(128))]
    #[derive(Debug)]
    pub struct CachePadded<T>(T);
    impl<T> CachePadded<T> {
        pub const fn new(value: T) -> Self {
            Self(value)
        }
    }
    impl<T> std::ops::Deref for CachePadded<T> {
        type Target = T;
        fn deref(&self) -> &T {
            &self.0
        }
    }
}
";

impl Paste<'_> {
    /// Changes the sources.
    ///
    /// # Errors
    /// If there is nothing that it can be put in the place of.
    pub(crate) fn apply(&self, sources: &mut Sources) -> anyhow::Result<()> {
        let source = self.source.trim();
        let is_struct = ["struct ", "typedef struct ", "type "]
            .iter()
            .any(|it| source.starts_with(it))
            && !source.starts_with("type padded[");
        if source.contains("struct Padded<T>(T)") || source.contains(" padded") {
            return self.wrap(sources);
        }
        if is_struct {
            return definition(sources, source);
        }
        if source.starts_with("#[repr(") {
            let line = source.lines().next().unwrap_or_default();
            let name = line.rsplit("struct ").next().unwrap_or_default();
            return in_front_of_struct(sources, name.trim_end_matches('`'), line);
        }
        if source.contains("/* in front of the first member */") {
            let (text, body) = self.body(sources)?;
            text.insert_str(body.start, &format!(" {source} "));
            return Ok(());
        }
        for line in source.lines().filter(|it| !is_comment(it)) {
            match line.split_once("// in front of ") {
                Some((padding, member)) => self.in_front_of(sources, padding, member)?,
                None if line.contains("CachePadded<") => self.field(sources, line)?,
                None => self.member(sources, line)?,
            }
        }
        Ok(())
    }

    /// The text that holds the struct's members, and where they stand in it.
    fn body<'s>(
        &self,
        sources: &'s mut Sources,
    ) -> anyhow::Result<(&'s mut String, std::ops::Range<usize>)> {
        let name = last_name(self.type_name);
        for text in sources.values_mut() {
            if let Some(found) = struct_body(text, name).or_else(|| body_of(text, self.variable)) {
                return Ok((text, found));
            }
        }
        bail!(
            "no struct `{name}` and no variable `{}` of one",
            self.variable
        )
    }

    /// A declaration of a member in C or C++ that begins a line.
    fn member(&self, sources: &mut Sources, declared: &str) -> anyhow::Result<()> {
        let declared = declared.trim().trim_end_matches(';');
        let bare = declared.split('[').next().unwrap_or(declared);
        let name = last_word(bare);
        let (text, body) = self.body(sources)?;
        let inside = &text[body.clone()];
        let (at, end) = declaration_of(inside, name)
            .with_context(|| format!("no member `{name}` is declared"))?;
        text.replace_range(body.start + at..body.start + end, declared);
        Ok(())
    }

    /// A padded field in Rust, which is made of what it was made of.
    fn field(&self, sources: &mut Sources, line: &str) -> anyhow::Result<()> {
        let declared = line.split("//").next().unwrap_or_default().trim();
        let (name, _) = declared.split_once(": ").context("a field")?;
        let (text, body) = self.body(sources)?;
        let key = format!("{name}: ");
        let mut made = String::new();
        for (line, start) in text.lines().scan(0, |at, line| {
            *at += line.len() + 1;
            Some((line, *at - line.len() - 1))
        }) {
            let trimmed = line.trim_start().trim_start_matches("pub ");
            let value = trimmed.strip_prefix(&key);
            match (value, body.contains(&start)) {
                (Some(_), true) => made.push_str(&format!("    {declared}")),
                (Some(value), false) if value.ends_with(',') => made.push_str(&format!(
                    "{key}crossbeam_utils::CachePadded::new({}),",
                    value.trim_end_matches(',')
                )),
                _ => made.push_str(line),
            }
            made.push('\n');
        }
        *text = made;
        if !text.contains(CACHE_PADDED) {
            text.push_str(CACHE_PADDED);
        }
        Ok(())
    }

    fn in_front_of(
        &self,
        sources: &mut Sources,
        padding: &str,
        member: &str,
    ) -> anyhow::Result<()> {
        let (text, body) = self.body(sources)?;
        let at = words(&text[body.clone()], member.trim())
            .next()
            .with_context(|| format!("no member `{member}`"))?;
        let at = text[..body.start + at].rfind('\n').map_or(0, |at| at + 1);
        text.insert_str(at, &format!("{padding}\n"));
        Ok(())
    }

    /// A type that wraps others: it must compile, and what it would do to the elements is done to their type.
    fn wrap(&self, sources: &mut Sources) -> anyhow::Result<()> {
        let source = self.source.trim();
        let name = last_name(self.type_name).to_owned();
        if source.starts_with("#[repr(") {
            let line = source.lines().next().unwrap_or_default();
            in_front_of_struct(sources, &name, line)?;
        } else if source.starts_with("template") {
            let aligned = source.find("alignas").context("alignas")?;
            let aligned = &source[aligned..=source.find(')').context("alignas")?];
            let (text, body) = self.body(sources)?;
            let head = text[..body.start].rfind(&name).context("a name")?;
            text.insert_str(head, &format!("{aligned} "));
        } else {
            let padding = source.lines().nth(2).context("padding")?.trim();
            let (text, body) = self.body(sources)?;
            text.insert_str(body.end, &format!("\t{padding}\n"));
        }
        let holds = |text: &&mut String| struct_body(text, &name).is_some();
        let text = sources.values_mut().find(holds).context("a struct")?;
        text.push_str(&format!("\n{source}\n"));
        Ok(())
    }
}

fn is_comment(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with("//") || line.starts_with("/*")
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The last name in a type or declaration: `hits` of `long int hits`, `Counter` of `Apart<[shop::Counter; 8]>`.
fn last_name(text: &str) -> &str {
    let text = text.split(';').next().unwrap_or(text);
    let text = text.split_once('[').map_or(text, |(before, after)| {
        match before.ends_with('<') || before.is_empty() {
            true => after
                .rsplit(']')
                .next()
                .filter(|it| !it.is_empty())
                .unwrap_or(after),
            false => before,
        }
    });
    let text = match text.find('<').filter(|at| *at > 0) {
        Some(at) => &text[..at],
        None => text,
    };
    last_word(text)
}

fn last_word(text: &str) -> &str {
    let text = text.trim_end_matches(|c| !is_word(c));
    let start = text.rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
    &text[start..]
}

/// Where a name stands as a word of its own.
fn words<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_whole = move |at: &usize| {
        !text[..*at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word)
    };
    let found = text.match_indices(name).map(|(at, _)| at);
    found.filter(move |at| !name.is_empty() && is_whole(at))
}

/// What stands between a brace and the one that closes it.
fn braces(text: &str, open: usize) -> Option<std::ops::Range<usize>> {
    let mut depth = 0;
    for (at, c) in text[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return Some(open + 1..open + at),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The members of the struct of that name.
fn struct_body(text: &str, name: &str) -> Option<std::ops::Range<usize>> {
    words(text, name).find_map(|at| {
        let head = text[..at].trim_end();
        // `struct alignas(64) name` as well as `struct name`.
        let line = head.rsplit(['\n', ';', '}']).next().unwrap_or_default();
        let after = text[at + name.len()..].trim_start();
        let is_head = ["struct", "class"]
            .iter()
            .any(|it| words(line, it).next().is_some());
        let open = text.len() - text[at + name.len()..].len();
        match after.chars().next() {
            Some('{' | '<') if is_head || head.ends_with("type") || head.ends_with('f') => {
                braces(text, open + text[open..].find('{')?)
            }
            Some('s') if head.ends_with("type") && after.starts_with("struct") => {
                braces(text, open + text[open..].find('{')?)
            }
            _ if is_head || ends_a_head(head) => {
                let next = text[open..].find(['{', ';', '(', '*', '='])?;
                (text[open + next..].starts_with('{')).then(|| braces(text, open + next))?
            }
            // Named by a typedef.
            Some(';') if head.ends_with('}') => opened(text, head.len() - 1),
            _ => None,
        }
    })
}

/// Whether `struct` and what it is aligned to stand there, over lines of the preprocessor.
fn ends_a_head(head: &str) -> bool {
    head.ends_with("#endif")
        && head
            .rsplit('\n')
            .take(4)
            .any(|line| line.trim() == "struct")
}

/// What stands between the brace that a closing one at `close` belongs to and this.
fn opened(text: &str, close: usize) -> Option<std::ops::Range<usize>> {
    let mut opens: Vec<usize> = Vec::new();
    for (at, c) in text[..close].char_indices() {
        match c {
            '{' => opens.push(at),
            '}' => drop(opens.pop()),
            _ => {}
        }
    }
    Some(opens.pop()? + 1..close)
}

/// The members of the unnamed struct that a variable is declared with.
fn body_of(text: &str, variable: &str) -> Option<std::ops::Range<usize>> {
    words(text, variable).find_map(|at| {
        let close = text[..at].rfind('}')?;
        let between = &text[close + 1..at];
        let is_declared = between.chars().all(|c| is_word(c) || " \n#".contains(c));
        is_declared.then(|| opened(text, close)).flatten()
    })
}

/// Where a member's declaration begins and ends: what it is initialised with stays.
fn declaration_of(body: &str, name: &str) -> Option<(usize, usize)> {
    words(body, name).find_map(|at| {
        let after = &body[at + name.len()..];
        let mut end = at + name.len();
        let mut rest = after.trim_start();
        while rest.starts_with('[') {
            end = body.len() - rest.len() + rest.find(']')? + 1;
            rest = body[end..].trim_start();
        }
        let line = body[..at]
            .rfind(['\n', ';', '{', '}'])
            .map_or(0, |it| it + 1);
        let start = at - body[line..at].trim_start().len();
        let has_type = body[start..at].contains(' ')
            && !body[start..at].contains(['(', ','])
            && !body[start..at].starts_with("return ");
        (has_type && rest.starts_with([';', '=', '{'])).then_some((start, end))
    })
}

/// Replaces the definition of the struct that the source defines.
fn definition(sources: &mut Sources, source: &str) -> anyhow::Result<()> {
    let open = source.find('{').context("a struct")?;
    let close = source.rfind('}').context("a struct")?;
    let name = match source.starts_with("typedef") {
        true => source[close + 1..].trim().trim_end_matches(';'),
        false => last_name(source[..open].trim().trim_end_matches("struct")),
    };
    for text in sources.values_mut() {
        if let Some(body) = struct_body(text, name) {
            text.replace_range(body, &source[open + 1..close]);
            return Ok(());
        }
    }
    bail!("no struct `{name}` to be replaced")
}

/// Puts an attribute in front of a struct.
fn in_front_of_struct(sources: &mut Sources, name: &str, line: &str) -> anyhow::Result<()> {
    ensure!(!name.is_empty(), "a struct without a name");
    for text in sources.values_mut() {
        if let Some(body) = struct_body(text, name).or_else(|| tuple(text, name)) {
            let head = text[..body.start].rfind("struct ").unwrap_or(0);
            let at = text[..head].rfind('\n').map_or(0, |at| at + 1);
            text.insert_str(at, &format!("{line}\n"));
            return Ok(());
        }
    }
    bail!("no struct `{name}`")
}

/// The fields of a struct of Rust that have no names.
fn tuple(text: &str, name: &str) -> Option<std::ops::Range<usize>> {
    words(text, name).find_map(|at| {
        let is_head = text[..at].ends_with("struct ") && text[at + name.len()..].starts_with('(');
        is_head.then_some(at + name.len()..at + name.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pasted(text: &str, source: &str, type_name: &str) -> String {
        let mut sources = Sources::from([(PathBuf::from("it"), text.to_owned())]);
        let paste = Paste {
            source,
            type_name,
            variable: "all",
        };
        paste.apply(&mut sources).unwrap();
        sources.into_values().next().unwrap()
    }

    #[test]
    fn a_struct_is_replaced_wherever_it_is_named() {
        let source = "struct s {\n  _Alignas(64) int a;\n};\n";
        let text = "static struct s *p;\nstatic struct s {\n int a; } all[4];\n";
        let expected = "static struct s *p;\nstatic struct s {\n  _Alignas(64) int a;\n} all[4];\n";
        assert_eq!(pasted(text, source, "struct s"), expected);
        let source = "typedef struct {\n  _Alignas(64) int a;\n} s_t;\n";
        let expected = "typedef struct {\n  _Alignas(64) int a;\n} s_t;\n";
        assert_eq!(
            pasted("typedef struct { int a; } s_t;\n", source, "s_t"),
            expected
        );
    }

    #[test]
    fn a_member_keeps_its_value() {
        let text = "class S { long f() const { return a; }\n std::atomic<long> a{1};\n};";
        let source = "alignas(64) std::atomic<long int> a;";
        let expected =
            "class S { long f() const { return a; }\n alignas(64) std::atomic<long int> a{1};\n};";
        assert_eq!(pasted(text, source, "S"), expected);
        let text = "static struct {\n int a; } all[4];";
        let source = "_Alignas(64) int a;";
        let expected = "static struct {\n _Alignas(64) int a; } all[4];";
        assert_eq!(pasted(text, source, "(anonymous struct)"), expected);
    }

    #[test]
    fn the_last_name_of_a_type_is_that_of_its_elements() {
        for (kind, name) in [
            ("struct s", "s"),
            ("Apart<[shop::Counter; 8]>", "Counter"),
            ("generic::Slot<core::sync::atomic::AtomicU64>", "Slot"),
            ("[generic::Slot<core::sync::atomic::AtomicU64>; 16]", "Slot"),
            ("[16]main.counter", "counter"),
            ("WorkerStatistics[8]", "WorkerStatistics"),
            ("(anonymous)::documents", "documents"),
        ] {
            assert_eq!(last_name(kind), name, "{kind}");
        }
    }
}
