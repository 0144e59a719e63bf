//! Splits Rust source into the tokens that the scanner needs.

/// A token of source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name or keyword, without the `r#` of a raw identifier.
    Word(String),
    /// The separator `::`.
    Separator,
    /// The contents of a string literal, as written between its quotes.
    Text(String),
    /// Any other character outside of numbers, character literals and lifetimes.
    Sign(char),
}

/// A token and the line, counted from 1, on which it begins.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) token: Token,
    pub(crate) line: usize,
}

impl Placed {
    /// Returns the word, or `None` if the token is no word.
    pub(crate) fn word(&self) -> Option<&str> {
        match &self.token {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Returns whether the token is this character.
    pub(crate) fn is(&self, sign: char) -> bool {
        self.token == Token::Sign(sign)
    }
}

/// Returns the tokens of `source`, without comments, numbers, character literals and lifetimes.
pub(crate) fn tokens(source: &str) -> Vec<Placed> {
    let mut lexer = Lexer {
        rest: source.chars().collect(),
        at: 0,
        line: 1,
        found: Vec::new(),
    };
    while lexer.step() {}
    lexer.found
}

struct Lexer {
    rest: Vec<char>,
    at: usize,
    line: usize,
    found: Vec<Placed>,
}

impl Lexer {
    fn peek(&self, ahead: usize) -> char {
        self.rest.get(self.at + ahead).copied().unwrap_or('\0')
    }

    fn next(&mut self) -> char {
        let char = self.peek(0);
        self.at += 1;
        if char == '\n' {
            self.line += 1;
        }
        char
    }

    fn ended(&self) -> bool {
        self.at >= self.rest.len()
    }

    fn push(&mut self, token: Token, line: usize) {
        self.found.push(Placed { token, line });
    }

    /// Reads one token or skips one comment, space or literal. Returns `false` at the end.
    fn step(&mut self) -> bool {
        if self.ended() {
            return false;
        }
        let line = self.line;
        match self.peek(0) {
            '/' if self.peek(1) == '/' => {
                while !self.ended() && self.peek(0) != '\n' {
                    self.next();
                }
            }
            '/' if self.peek(1) == '*' => self.block_comment(),
            '"' => {
                let text = self.text();
                self.push(Token::Text(text), line);
            }
            '\'' => self.character_or_lifetime(),
            ':' if self.peek(1) == ':' => {
                self.at += 2;
                self.push(Token::Separator, line);
            }
            char if char.is_ascii_digit() => self.number(),
            char if begins_word(char) => self.word(),
            char if char.is_whitespace() => {
                self.next();
            }
            char => {
                self.next();
                self.push(Token::Sign(char), line);
            }
        }
        true
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while !self.ended() {
            match (self.peek(0), self.peek(1)) {
                ('/', '*') => {
                    depth += 1;
                    self.at += 2;
                }
                ('*', '/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => {
                    self.next();
                }
            }
        }
    }

    fn text(&mut self) -> String {
        let mut text = String::new();
        self.next();
        while !self.ended() {
            match self.next() {
                '"' => break,
                '\\' => {
                    text.push('\\');
                    text.push(self.next());
                }
                char => text.push(char),
            }
        }
        text
    }

    /// Reads the rest of a raw string: it ends with a quote followed by the `#` characters of its
    /// start.
    fn raw_text(&mut self) -> String {
        let mut fences = 0;
        while self.peek(0) == '#' {
            fences += 1;
            self.next();
        }
        self.next();
        let mut text = String::new();
        while !self.ended() {
            let char = self.next();
            if char == '"' && (0..fences).all(|ahead| self.peek(ahead) == '#') {
                self.at += fences;
                break;
            }
            text.push(char);
        }
        text
    }

    fn character_or_lifetime(&mut self) {
        self.next();
        if self.peek(0) == '\\' {
            self.next();
            self.next();
            while !self.ended() && self.next() != '\'' {}
        } else if self.peek(1) == '\'' {
            self.next();
            self.next();
        } else {
            while continues_word(self.peek(0)) {
                self.next();
            }
        }
    }

    fn number(&mut self) {
        while continues_word(self.peek(0)) || (self.peek(0) == '.' && self.peek(1).is_ascii_digit())
        {
            self.next();
        }
    }

    fn word(&mut self) {
        let line = self.line;
        let mut word = String::new();
        while continues_word(self.peek(0)) {
            word.push(self.next());
        }
        let raw = matches!(word.as_str(), "r" | "br" | "cr");
        match self.peek(0) {
            '"' if raw => {
                let text = self.raw_text();
                self.push(Token::Text(text), line);
            }
            '#' if raw && matches!(self.peek(1), '"' | '#') => {
                let text = self.raw_text();
                self.push(Token::Text(text), line);
            }
            '#' if word == "r" && begins_word(self.peek(1)) => {
                self.next();
                self.word();
            }
            '"' if matches!(word.as_str(), "b" | "c") => {
                let text = self.text();
                self.push(Token::Text(text), line);
            }
            '\'' if word == "b" => self.character_or_lifetime(),
            _ => self.push(Token::Word(word), line),
        }
    }
}

fn begins_word(char: char) -> bool {
    char == '_' || char.is_alphabetic()
}

fn continues_word(char: char) -> bool {
    char == '_' || char.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        tokens(source)
            .iter()
            .filter_map(|placed| placed.word().map(str::to_owned))
            .collect()
    }

    #[test]
    fn what_is_no_code_is_left_out() {
        assert_eq!(words("a // b\n c /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(words(r##"a "b \" c" r#"d " e"# b"f" c"g" h"##), ["a", "h"]);
        assert_eq!(
            words(r"a 'b' '\'' '\u{1f}' b'\\' c<'d> 0xef 1.5e3 g"),
            ["a", "c", "g"]
        );
        assert_eq!(words("0..end r#type"), ["end", "type"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_strings() {
        let found = tokens("/*\n*/ \"\n\" a\n::b");
        let lines: Vec<usize> = found.iter().map(|placed| placed.line).collect();
        assert_eq!(lines, [2, 3, 4, 4]);
    }
}
