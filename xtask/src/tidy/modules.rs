//! The modules of a crate as its sources declare them, and which names each takes from which file.
//!
//! Tokens are read, not types: a path counts, a method call does not. Tests are left out. What a
//! file hands on with `pub use` counts as taken from where it is defined.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use anyhow::anyhow;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::files::File;

/// The names that a file takes from another, by both paths.
pub(super) type Uses = BTreeMap<(String, String), BTreeSet<String>>;

/// Words before the name of an item.
const ITEMS: &[&str] = &[
    "const", "enum", "fn", "static", "struct", "trait", "type", "union",
];
/// So many re-exports are followed before a name counts as foreign: `use foo::foo` names itself.
const MOST_STEPS: usize = 16;

/// Who takes what from whom in the crate whose root is `crates/x/src/lib.rs`, say.
///
/// # Errors
/// If a file of the crate is no Rust.
pub(super) fn uses(root: &str, files: &BTreeMap<&str, &File>) -> anyhow::Result<Uses> {
    let mut tree = Tree {
        files,
        modules: Vec::new(),
    };
    tree.add(root, None)?;
    Ok(tree.uses())
}

/// A path as it is written, `crate`, `self` and `super` included.
type Path = Vec<String>;

#[derive(Default)]
struct Module {
    file: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    defined: BTreeSet<String>,
    /// Local names of imports, and whether they are handed on.
    imported: BTreeMap<String, (Path, bool)>,
    globs: Vec<Path>,
    /// Paths in the code, imports apart.
    inline: BTreeSet<Path>,
    /// Every word of the code, imports apart.
    words: BTreeSet<String>,
}

/// What a path leads to.
enum Found {
    Module(usize),
    /// An item of a module, by its name.
    Item(usize, String),
}

struct Tree<'a> {
    files: &'a BTreeMap<&'a str, &'a File>,
    modules: Vec<Module>,
}

impl Tree<'_> {
    /// Reads the file of a module and of those below it.
    fn add(&mut self, path: &str, parent: Option<usize>) -> anyhow::Result<Option<usize>> {
        // A file that is not there is another rule's business: the compiler's.
        let Some(file) = self.files.get(path) else {
            return Ok(None);
        };
        let tokens =
            TokenStream::from_str(&file.text).map_err(|error| anyhow!("{path}: {error}"))?;
        let module = self.open(path, parent);
        self.scan(tokens, module, true)?;
        Ok(Some(module))
    }

    fn open(&mut self, file: &str, parent: Option<usize>) -> usize {
        self.modules.push(Module {
            file: file.to_owned(),
            parent,
            ..Module::default()
        });
        self.modules.len() - 1
    }

    /// Reads tokens of a module; `outside` of every item's body names are defined.
    fn scan(&mut self, tokens: TokenStream, module: usize, outside: bool) -> anyhow::Result<()> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        let mut handed_on = false;
        let mut elsewhere = None;
        while let Some(token) = tokens.get(at) {
            let word = match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let attribute = tokens.get(at + 1);
                    if attribute.is_some_and(is_for_tests) {
                        at = behind_item(&tokens, at + 2);
                    } else if let Some(attribute) = attribute {
                        elsewhere = path_attribute(attribute).or(elsewhere);
                        at += 2;
                    }
                    continue;
                }
                TokenTree::Group(group) => {
                    self.scan(group.stream(), module, false)?;
                    at += 1;
                    continue;
                }
                TokenTree::Ident(ident) => ident.to_string(),
                _ if is_path_sign(&tokens, at) => {
                    // What follows goes on a path whose begin is a type, or another crate.
                    at += 2;
                    at += usize::from(matches!(tokens.get(at), Some(TokenTree::Ident(_))));
                    continue;
                }
                _ => {
                    at += 1;
                    continue;
                }
            };
            let name = tokens.get(at + 1).and_then(ident);
            match (word.as_str(), name) {
                ("pub", _) => {
                    handed_on = true;
                    at += 1;
                    at += usize::from(
                        matches!(tokens.get(at), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis),
                    );
                    continue;
                }
                ("use", _) => {
                    let end = behind(&tokens, at, ';');
                    self.import(&tokens[at + 1..end - 1], &[], module, handed_on);
                    at = end;
                }
                ("mod", Some(name)) => {
                    self.submodule(&name, tokens.get(at + 2), elsewhere.take(), module)?;
                    at += 3;
                }
                (item, Some(name)) if outside && ITEMS.contains(&item) => {
                    if !ITEMS.contains(&name.as_str()) {
                        self.modules[module].defined.insert(name);
                    }
                    at += 1;
                }
                ("macro_rules", None) if outside => {
                    let name = tokens.get(at + 2).and_then(ident);
                    self.modules[module].defined.extend(name);
                    at += 2;
                }
                _ => at = self.path(&tokens, at, module),
            }
            handed_on = false;
        }
        Ok(())
    }

    /// `mod name;` or `mod name { ... }`.
    fn submodule(
        &mut self,
        name: &str,
        body: Option<&TokenTree>,
        elsewhere: Option<String>,
        module: usize,
    ) -> anyhow::Result<()> {
        let file = self.modules[module].file.clone();
        let child = if let Some(TokenTree::Group(group)) = body {
            let child = self.open(&file, Some(module));
            self.scan(group.stream(), child, true)?;
            Some(child)
        } else {
            let (folder, own) = file.rsplit_once('/').unwrap_or_default();
            let inside = match own {
                "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
                _ => file.trim_end_matches(".rs").to_owned(),
            };
            let places = match elsewhere {
                Some(path) => vec![format!("{folder}/{path}")],
                None => vec![
                    format!("{inside}/{name}.rs"),
                    format!("{inside}/{name}/mod.rs"),
                ],
            };
            let path = places
                .iter()
                .find(|path| self.files.contains_key(path.as_str()));
            path.map_or(Ok(None), |path| self.add(path, Some(module)))?
        };
        if let Some(child) = child {
            self.modules[module].children.insert(name.to_owned(), child);
        }
        Ok(())
    }

    /// A tree of imports below `prefix`.
    fn import(&mut self, tokens: &[TokenTree], prefix: &[String], module: usize, handed_on: bool) {
        let mut path = prefix.to_vec();
        let mut name = None;
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    name = tokens.get(at + 1).and_then(ident);
                    break;
                }
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    self.modules[module].globs.push(path);
                    return;
                }
                TokenTree::Group(group) => {
                    let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in inside.split(|token| is_sign(token, ',')) {
                        if !part.is_empty() {
                            self.import(part, &path, module, handed_on);
                        }
                    }
                    return;
                }
                _ => {}
            }
        }
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            let imported = &mut self.modules[module].imported;
            // Two imports of one name: one stands in a function, or a macro beside a type.
            let key = if imported.contains_key(&name) && imported[&name].0 != path {
                format!("{name} {}", path.join("::"))
            } else {
                name
            };
            imported.insert(key, (path, handed_on));
        }
    }

    /// A word, and the path that it begins; answers where it ends.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize, module: usize) -> usize {
        let begin = at;
        let mut path = Vec::new();
        while let Some(word) = tokens.get(at).and_then(ident) {
            path.push(word);
            at += 1;
            if !is_path_sign(tokens, at) || tokens.get(at + 2).and_then(ident).is_none() {
                break;
            }
            at += 2;
        }
        let module = &mut self.modules[module];
        if !is_member(tokens, begin) {
            module.words.insert(path[0].clone());
        }
        if path.len() > 1 {
            module.inline.insert(path);
        }
        at
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (at, module) in self.modules.iter().enumerate() {
            let imported = module
                .imported
                .iter()
                .filter_map(|(name, (path, handed_on))| {
                    (!handed_on || module.words.contains(name)).then_some(path)
                });
            for path in imported.chain(&module.inline) {
                self.note(&mut uses, at, self.find(at, path, 0));
            }
            for word in &module.words {
                if module.defined.contains(word) || module.imported.contains_key(word) {
                    continue;
                }
                self.note(&mut uses, at, self.through_globs(at, word, 0));
            }
        }
        uses
    }

    fn note(&self, uses: &mut Uses, by: usize, found: Option<Found>) {
        let Some(Found::Item(from, name)) = found else {
            return;
        };
        let (by, from) = (&self.modules[by].file, &self.modules[from].file);
        if by != from {
            let names = uses.entry((by.clone(), from.clone())).or_default();
            names.insert(name);
        }
    }

    /// What a path written in `module` leads to; `None` outside of the crate.
    fn find(&self, module: usize, path: &[String], steps: usize) -> Option<Found> {
        if steps > MOST_STEPS {
            return None;
        }
        let mut found = Found::Module(module);
        for (at, word) in path.iter().enumerate() {
            let Found::Module(inside) = found else {
                return Some(found);
            };
            let last = at + 1 == path.len();
            found = match word.as_str() {
                "crate" => Found::Module(0),
                "self" => found,
                "super" => Found::Module(self.modules[inside].parent?),
                _ => match self.look_up(inside, word, last, steps) {
                    Some(known) => known,
                    // Others' crates are named without `crate`, `self` or `super`.
                    None if at == 0 || self.modules[inside].imported.contains_key(word) => {
                        return None;
                    }
                    // What a macro defines is not seen.
                    None => Found::Item(inside, word.clone()),
                },
            };
        }
        Some(found)
    }

    fn look_up(&self, inside: usize, word: &str, last: bool, steps: usize) -> Option<Found> {
        let module = &self.modules[inside];
        let child = module.children.get(word).copied().map(Found::Module);
        if !last && child.is_some() {
            return child;
        }
        if module.defined.contains(word) {
            return Some(Found::Item(inside, word.to_owned()));
        }
        let imported = module.imported.get(word);
        imported
            .and_then(|(path, _)| self.find(inside, path, steps + 1))
            .or(child)
            .or_else(|| self.through_globs(inside, word, steps + 1))
    }

    fn through_globs(&self, inside: usize, word: &str, steps: usize) -> Option<Found> {
        self.modules[inside].globs.iter().find_map(|glob| {
            match self.find(inside, glob, steps + 1)? {
                Found::Module(from) if from != inside => self.look_up(from, word, true, steps + 1),
                _ => None,
            }
        })
    }
}

fn ident(token: &TokenTree) -> Option<String> {
    match token {
        TokenTree::Ident(ident) => Some(ident.to_string()),
        _ => None,
    }
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign)
}

/// Whether `::` stands here.
fn is_path_sign(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |at: usize| tokens.get(at).is_some_and(|token| is_sign(token, ':'));
    let joint = matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.spacing() == proc_macro2::Spacing::Joint);
    joint && colon(at) && colon(at + 1)
}

/// Where the next token behind `sign` is.
fn behind(tokens: &[TokenTree], at: usize, sign: char) -> usize {
    let rest = &tokens[at..];
    let length = rest.iter().position(|token| is_sign(token, sign));
    length.map_or(tokens.len(), |length| at + length + 1)
}

/// Where what begins here ends: an item with its body or semicolon, or a field, an arm, a variant.
fn behind_item(tokens: &[TokenTree], mut at: usize) -> usize {
    let item = |word: &str| {
        ITEMS.contains(&word) || ["impl", "let", "mod", "pub", "unsafe", "use"].contains(&word)
    };
    let mut is_item = false;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Ident(word) => is_item |= item(&word.to_string()),
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => break,
            token if is_sign(token, ';') || (!is_item && is_sign(token, ',')) => break,
            _ => {}
        }
    }
    at
}

/// Whether this attribute leaves what follows to tests: `cfg(test)`, or `test` under `all`.
fn is_for_tests(attribute: &TokenTree) -> bool {
    let TokenTree::Group(attribute) = attribute else {
        return false;
    };
    let text: String = attribute.stream().to_string().replace(' ', "");
    text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// The file that `#[path = "..."]` names.
fn path_attribute(attribute: &TokenTree) -> Option<String> {
    let TokenTree::Group(attribute) = attribute else {
        return None;
    };
    let text = attribute.stream().to_string();
    let value = text.strip_prefix("path")?.trim_start().strip_prefix('=')?;
    Some(value.trim().trim_matches('"').to_owned())
}

/// Whether the word here names a method or a field, which no import does.
fn is_member(tokens: &[TokenTree], at: usize) -> bool {
    let sign = |at: Option<usize>, sign| {
        let token = at.and_then(|at| tokens.get(at));
        token.is_some_and(|token| is_sign(token, sign))
    };
    let behind_a_dot = sign(at.checked_sub(1), '.') && !sign(at.checked_sub(2), '.');
    behind_a_dot || (sign(Some(at + 1), ':') && !is_path_sign(tokens, at + 1))
}
