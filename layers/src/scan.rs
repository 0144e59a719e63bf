//! Reads one file: what it declares, imports, defines and mentions.

use crate::module::{Declared, Id, Import, Mention, Tree};
use crate::token::{Placed, Token, tokens};

/// Words that begin an item; what follows `#[cfg(test)]` else is a field, an arm or an expression.
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

/// Items of these end with a semicolon, even after a closing brace.
const STATEMENTS: [&str; 5] = ["const", "let", "static", "type", "use"];

/// Puts down in `module`, and in inline modules below it, what `text` holds; returns the modules of
/// which the files are yet to be read.
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

struct Scanner<'a> {
    tokens: Vec<Placed>,
    tree: &'a mut Tree,
    /// The module of the file and the inline modules around the token that is looked at.
    open: Vec<Open>,
    /// Braces around the token that is looked at.
    depth: usize,
    declared: Vec<Declared>,
}

struct Open {
    module: Id,
    name: String,
    /// Braces around what it holds.
    depth: usize,
}

/// What attributes and visibility say of the item that follows them.
#[derive(Default)]
struct Before {
    is_public: bool,
    path: Option<String>,
}

impl Scanner<'_> {
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

    fn module(&self) -> Id {
        self.open.last().map_or(0, |open| open.module)
    }

    fn sign(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(sign))
    }

    fn separator(&self, at: usize) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|token| token.token == Token::Separator)
    }

    fn word(&self, at: usize) -> Option<&str> {
        self.tokens.get(at).and_then(Placed::word)
    }

    /// Past `(crate)` and the like.
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

    /// The index of what closes the bracket at `at`.
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

    /// One attribute. One that says that what follows is for tests skips all of it.
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

    /// Where the block ends around `at`.
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

    /// Past the item, field, arm or expression that begins at `at`, further attributes included.
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
                // The end of what is around it.
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

    /// Whatever stands at `at`; returns where to go on.
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

    fn macro_definition(&mut self, at: usize) -> usize {
        if let Some(name) = self.word(at + 2).map(str::to_owned) {
            let module = self.module();
            self.tree.modules[module].items.insert(name.clone());
            self.tree.macros.insert(name, module);
        }
        at + 3
    }

    /// A path, a macro or a bare name at `at`.
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

    /// What follows `use`, to its semicolon.
    fn import(&mut self, at: usize, is_public: bool) -> usize {
        let mut end = at;
        while end < self.tokens.len() && !self.sign(end, ';') {
            end += 1;
        }
        let mut found = Vec::new();
        self.branch(at, end, &[], &mut found);
        let module = self.module();
        self.tree.modules[module]
            .imports
            .extend(found.into_iter().map(|(name, path, line)| Import {
                name,
                path,
                is_public,
                line,
            }));
        end + 1
    }

    /// One branch of a `use` up to its comma or `end`; returns where it ends.
    fn branch(
        &self,
        mut at: usize,
        end: usize,
        stem: &[String],
        found: &mut Vec<(String, Vec<String>, usize)>,
    ) -> usize {
        let mut path = stem.to_vec();
        // A path from the root of all crates is none of ours.
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

/// Whether an attribute with this body keeps what follows for tests: `cfg(test)`, or `all` of it and
/// more.
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
        let join = |import: &Import| format!("{}={}", import.name, import.path.join("::"));
        root(text).imports.iter().map(join).collect()
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
