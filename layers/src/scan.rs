//! Scans one file for its modules, imports, items and uses.

use crate::module::{Declared, Id, Mention, Tree, UseItem};
use crate::token::{Placed, Token, tokens};

/// Keywords that begin an item or a `let`. Anything else after `#[cfg(test)]` is a field, a match
/// arm or an expression.
const ITEMS: [&str; 17] = [
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "let",
    "macro_rules",
    "mod",
    "pub",
    "static",
    "struct",
    "trait",
    "type",
    "union",
    "unsafe",
    "use",
];

/// Keywords whose item ends with a semicolon, even after a closing brace.
const STATEMENTS: [&str; 5] = ["const", "let", "static", "type", "use"];

/// Adds the contents of `text` to `module` and to new inline modules below it. Returns the declared
/// modules whose files must still be read.
pub(crate) fn scan(tree: &mut Tree, module: Id, text: &str) -> Vec<Declared> {
    let mut scanner = Scanner {
        tokens: tokens(text),
        tree,
        open: vec![Open {
            module,
            name: String::new(),
            depth: 0,
        }],
        depth: 0,
        declared: Vec::new(),
    };
    scanner.run();
    scanner.declared
}

/// The state of a scan through the tokens of one file.
struct Scanner<'a> {
    tokens: Vec<Placed>,
    tree: &'a mut Tree,
    /// The module of the file and the inline modules around the current token.
    open: Vec<Open>,
    /// Number of braces around the current token.
    depth: usize,
    declared: Vec<Declared>,
}

/// A module whose block the scan is inside.
struct Open {
    module: Id,
    name: String,
    /// Number of braces around the module's contents.
    depth: usize,
}

/// The visibility and the `#[path]` before an item.
#[derive(Default)]
struct Before {
    is_public: bool,
    path: Option<String>,
}

impl Scanner<'_> {
    /// Scans all tokens.
    fn run(&mut self) {
        let mut at = 0;
        let mut before = Before::default();
        while at < self.tokens.len() {
            match &self.tokens[at].token {
                Token::Sign('#') => at = self.attribute(at, &mut before),
                Token::Word(word) if word == "pub" => {
                    before.is_public = true;
                    at = self.after_visibility(at + 1);
                }
                _ => {
                    let said = std::mem::take(&mut before);
                    at = self.piece(at, said);
                }
            }
        }
    }

    /// Returns the innermost open module.
    fn module(&self) -> Id {
        self.open.last().map_or(0, |open| open.module)
    }

    /// Returns whether the token at index `at` is this character.
    fn sign(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(sign))
    }

    /// Returns whether the token at index `at` is `::`.
    fn separator(&self, at: usize) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|token| token.token == Token::Separator)
    }

    /// Returns the word at index `at`, or `None` if the token is no word.
    fn word(&self, at: usize) -> Option<&str> {
        self.tokens.get(at).and_then(Placed::word)
    }

    /// Returns the index after a restriction such as `(crate)` at `at`, or `at` if there is none.
    fn after_visibility(&self, at: usize) -> usize {
        if !self.sign(at, '(') {
            return at;
        }
        match self.word(at + 1) {
            Some("crate" | "self" | "super") if self.sign(at + 2, ')') => at + 3,
            Some("in") => self.closing(at) + 1,
            _ => at,
        }
    }

    /// Returns the index of the bracket that closes the one at `at`, or the number of tokens.
    fn closing(&self, at: usize) -> usize {
        let mut depth = 0_usize;
        for (index, token) in self.tokens.iter().enumerate().skip(at) {
            match token.token {
                Token::Sign('(' | '[' | '{') => depth += 1,
                Token::Sign(')' | ']' | '}') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return index;
                    }
                }
                _ => {}
            }
        }
        self.tokens.len()
    }

    /// Scans the attribute at `at` and returns the index after it. If the attribute is for tests
    /// only, the result is the index after everything that it applies to.
    fn attribute(&mut self, at: usize, before: &mut Before) -> usize {
        let is_inner = self.sign(at + 1, '!');
        let opening = if is_inner { at + 2 } else { at + 1 };
        if !self.sign(opening, '[') {
            return at + 1;
        }
        let end = self.closing(opening);
        let body = &self.tokens[opening + 1..end.min(self.tokens.len())];
        if is_test_only(body) {
            return if is_inner {
                self.after_block(end)
            } else {
                self.after_item(end + 1)
            };
        }
        if let [
            name,
            _,
            Placed {
                token: Token::Text(path),
                ..
            },
        ] = body
            && name.word() == Some("path")
        {
            before.path = Some(path.clone());
        }
        let mut inner = opening + 1;
        while inner < end {
            inner = self.mention(inner);
        }
        end + 1
    }

    /// Returns the index of the brace that closes the block around `at`, or the number of tokens.
    fn after_block(&self, at: usize) -> usize {
        let mut depth = 0_usize;
        for (index, token) in self.tokens.iter().enumerate().skip(at + 1) {
            match token.token {
                Token::Sign('{') => depth += 1,
                Token::Sign('}') if depth == 0 => return index,
                Token::Sign('}') => depth -= 1,
                _ => {}
            }
        }
        self.tokens.len()
    }

    /// Returns the index after the item, field, match arm or expression at `at`, with its
    /// attributes.
    fn after_item(&self, mut at: usize) -> usize {
        while self.sign(at, '#') && self.sign(at + 1, '[') {
            at = self.closing(at + 1) + 1;
        }
        let visible = if self.word(at) == Some("pub") {
            self.after_visibility(at + 1)
        } else {
            at
        };
        let first = self.word(visible);
        let is_item = self.word(at).is_some_and(|word| ITEMS.contains(&word));
        let is_statement = first.is_some_and(|word| STATEMENTS.contains(&word))
            && self.word(visible + 1) != Some("fn");
        while at < self.tokens.len() {
            match self.tokens[at].token {
                Token::Sign(';') => return at + 1,
                Token::Sign(',') if !is_item => return at + 1,
                // The end of the surrounding block, list or call.
                Token::Sign(')' | ']' | '}') => return at,
                Token::Sign(sign @ ('(' | '[' | '{')) => {
                    at = self.closing(at) + 1;
                    if sign == '{' && !is_statement {
                        return at;
                    }
                }
                _ => at += 1,
            }
        }
        at
    }

    /// Scans the tokens at `at`, which belong to no attribute or visibility. Returns the index to
    /// continue at.
    fn piece(&mut self, at: usize, before: Before) -> usize {
        let token = self.tokens[at].clone();
        match &token.token {
            Token::Sign('{') => self.depth += 1,
            Token::Sign('}') => {
                self.depth = self.depth.saturating_sub(1);
                if self.open.len() > 1 && self.open.last().is_some_and(|o| o.depth > self.depth) {
                    self.open.pop();
                }
            }
            Token::Word(word) => {
                let name = self.word(at + 1).map(str::to_owned);
                match (word.as_str(), name) {
                    ("mod", Some(name)) => return self.submodule(at, name, before),
                    ("use", _) if !self.sign(at + 1, '<') => {
                        return self.import(at + 1, before.is_public);
                    }
                    ("macro_rules", _) if self.sign(at + 1, '!') => {
                        return self.macro_definition(at);
                    }
                    (
                        "const" | "enum" | "fn" | "static" | "struct" | "trait" | "type" | "union",
                        Some(name),
                    ) => return self.item(at, name),
                    _ => return self.mention(at),
                }
            }
            _ => {}
        }
        at + 1
    }

    /// Scans a `mod` at `at`: opens an inline module or records a declaration. Returns the index to
    /// continue at.
    fn submodule(&mut self, at: usize, name: String, before: Before) -> usize {
        let parent = self.module();
        if self.sign(at + 2, '{') {
            let file = self.tree.modules[parent].file;
            let module = self.tree.add(name.clone(), parent, file);
            self.depth += 1;
            self.open.push(Open {
                module,
                name,
                depth: self.depth,
            });
            return at + 3;
        }
        let within = self
            .open
            .iter()
            .skip(1)
            .map(|open| open.name.clone())
            .collect();
        self.declared.push(Declared {
            name,
            parent,
            path: before.path,
            within,
        });
        at + 2
    }

    /// Records the item `name` whose keyword is at `at`, unless it is nested in a block. Returns
    /// the index to continue at.
    fn item(&mut self, at: usize, name: String) -> usize {
        let here = self.open.last().map_or(0, |open| open.depth);
        if self.depth == here {
            let name = match (name.as_str(), self.word(at + 2)) {
                ("mut", Some(name)) => name.to_owned(),
                _ => name,
            };
            let module = self.module();
            self.tree.modules[module].items.insert(name);
        }
        at + 1
    }

    /// Records the `macro_rules!` at `at` and returns the index after its name.
    fn macro_definition(&mut self, at: usize) -> usize {
        if let Some(name) = self.word(at + 2).map(str::to_owned) {
            let module = self.module();
            self.tree.modules[module].items.insert(name.clone());
            self.tree.macros.insert(name, module);
        }
        at + 3
    }

    /// Records the path, macro call or name at `at` and returns the index after it.
    fn mention(&mut self, at: usize) -> usize {
        let line = self.tokens[at].line;
        let Some(first) = self.word(at).map(str::to_owned) else {
            return at + 1;
        };
        let continues = at > 0 && self.separator(at - 1);
        let is_parameter = at > 0 && self.sign(at - 1, '$') && first != "crate";
        let mut path = vec![first.clone()];
        let mut next = at + 1;
        while self.separator(next) {
            let Some(segment) = self.word(next + 1) else {
                break;
            };
            path.push(segment.to_owned());
            next += 2;
        }
        let module = self.module();
        let is_macro = self.sign(next, '!') && !self.sign(next + 1, '=');
        let module = &mut self.tree.modules[module];
        if continues || is_parameter {
            return next;
        }
        module.words.insert(first);
        if path.len() > 1 {
            module.paths.push(Mention { path, line });
        } else if is_macro {
            module.macros.push(Mention { path, line });
        }
        next
    }

    /// Records the imports of a `use` whose tree begins at `at`. Returns the index after its
    /// semicolon.
    fn import(&mut self, at: usize, is_public: bool) -> usize {
        let mut end = at;
        while end < self.tokens.len() && !self.sign(end, ';') {
            end += 1;
        }
        let mut found = Vec::new();
        self.branch(at, end, &[], &mut found);
        let module = self.module();
        self.tree.modules[module]
            .use_items
            .extend(found.into_iter().map(|(name, path, line)| UseItem {
                name,
                path,
                is_public,
                line,
            }));
        end + 1
    }

    /// Adds the imports of one branch of a `use` tree, up to a comma or `end`, to `found`. `stem`
    /// is the path before the branch. Returns the index at which the branch ends.
    fn branch(
        &self,
        mut at: usize,
        end: usize,
        stem: &[String],
        found: &mut Vec<(String, Vec<String>, usize)>,
    ) -> usize {
        let mut path = stem.to_vec();
        // A path that begins with `::` names another crate, so it must not resolve to a module
        // here.
        if stem.is_empty() && self.separator(at) {
            path.push("::".to_owned());
        }
        while at < end {
            let line = self.tokens[at].line;
            match &self.tokens[at].token {
                Token::Separator => at += 1,
                Token::Sign('*') => {
                    found.push(("*".to_owned(), path.clone(), line));
                    return at + 1;
                }
                Token::Sign('{') => {
                    at += 1;
                    while at < end && !self.sign(at, '}') {
                        at = self.branch(at, end, &path, found);
                        if self.sign(at, ',') {
                            at += 1;
                        }
                    }
                    return at + 1;
                }
                Token::Word(word) => {
                    if word != "self" || path.is_empty() {
                        path.push(word.clone());
                    }
                    at += 1;
                    if self.separator(at) {
                        continue;
                    }
                    let renamed = self.word(at) == Some("as");
                    let name = if renamed {
                        self.word(at + 1)
                    } else {
                        path.last().map(String::as_str)
                    };
                    found.push((name.unwrap_or_default().to_owned(), path.clone(), line));
                    return if renamed { at + 2 } else { at };
                }
                _ => return at + 1,
            }
        }
        at
    }
}

/// Returns whether an attribute with this body restricts an item to tests: `cfg(test)`, or
/// `cfg(all(…))` with `test` in the list.
fn is_test_only(body: &[Placed]) -> bool {
    let word = |at: usize| body.get(at).and_then(Placed::word);
    if word(0) != Some("cfg") {
        return false;
    }
    if word(2) == Some("test") && body.get(3).is_some_and(|token| token.is(')')) {
        return true;
    }
    if word(2) != Some("all") {
        return false;
    }
    let mut depth = 0;
    for (at, token) in body.iter().enumerate().skip(3) {
        match token.token {
            Token::Sign('(') => depth += 1,
            Token::Sign(')') => depth -= 1,
            Token::Word(ref word)
                if depth == 1 && word == "test" && !body.get(at + 1).is_some_and(|t| t.is('(')) =>
            {
                return true;
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(text: &str) -> crate::module::Module {
        let mut tree = Tree::of_texts(&[("lib.rs", text)]).expect("no files missing");
        tree.modules.swap_remove(0)
    }

    fn imports(text: &str) -> Vec<String> {
        let join = |import: &UseItem| format!("{}={}", import.name, import.path.join("::"));
        root(text).use_items.iter().map(join).collect()
    }

    fn paths(text: &str) -> Vec<String> {
        root(text)
            .paths
            .iter()
            .map(|mention| mention.path.join("::"))
            .collect()
    }

    #[test]
    fn a_use_is_taken_apart() {
        assert_eq!(
            imports(
                "use crate::a::{self, b::{C, D as E}, f::*,}; use super::g as _; use ::std::h;"
            ),
            [
                "a=crate::a",
                "C=crate::a::b::C",
                "E=crate::a::b::D",
                "*=crate::a::f",
                "_=super::g",
                "h=::::std::h"
            ]
        );
    }

    #[test]
    fn paths_are_found_in_code_attributes_and_macros() {
        assert_eq!(
            paths(
                "#[arg(parser = a::b)] fn f(x: &crate::C) { d::<E>::g(); h.i::<super::J>() } \
                 macro_rules! k { () => { $crate::l::m!($n::o) } }"
            ),
            ["a::b", "crate::C", "super::J", "crate::l::m"]
        );
        assert!(paths("pub(in crate::a) fn f() {} struct S(pub(super) u8);").is_empty());
        assert_eq!(paths("struct S(pub (crate::A, u8));"), ["crate::A"]);
    }

    #[test]
    fn what_is_for_tests_is_skipped_and_nothing_else() {
        for gated in [
            "mod t { use crate::a; x::y(); }",
            "#[path = \"t.rs\"] mod t;",
            "use crate::a;",
            "use crate::{a, b};",
            "pub(crate) const A: B = B { c: d::e };",
            "pub(crate) const fn f<A, B>() { c::d() }",
            "impl<A, B> C for D { fn e() { f::g() } }",
        ] {
            for cfg in [
                "cfg(test)",
                "cfg(all(not(loom), test))",
                "cfg(all(test, unix))",
            ] {
                let text = format!("#[{cfg}] {gated} fn after() {{ p::q() }}");
                assert_eq!(paths(&text), ["p::q"], "{text}");
                assert!(imports(&text).is_empty(), "{text}");
            }
        }
        assert_eq!(
            paths("struct S { #[cfg(test)] a: b::C, d: e::F }"),
            ["e::F"]
        );
        assert_eq!(paths("fn f() { g(#[cfg(test)] a::b, c::d) }"), ["c::d"]);
        for cfg in [
            "cfg(not(test))",
            "cfg(any(test, unix))",
            "cfg(all(unix, not(test)))",
        ] {
            assert_eq!(
                paths(&format!("#[{cfg}] fn f() {{ a::b() }}")),
                ["a::b"],
                "{cfg}"
            );
        }
    }

    #[test]
    fn inline_modules_are_modules_of_the_same_file() {
        let tree = Tree::of_texts(&[("lib.rs", "mod a { fn f() { b::c() } } fn g() { d::e() }")])
            .expect("one file");
        assert_eq!(tree.files().count(), 1);
        let inner = &tree.modules[tree.modules[0].children["a"]];
        assert_eq!(inner.paths[0].path, ["b", "c"]);
        assert!(inner.items.contains("f"));
        assert_eq!(tree.modules[0].paths[0].path, ["d", "e"]);
    }
}
