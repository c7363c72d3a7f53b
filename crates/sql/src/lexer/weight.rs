//! Counts the tokens of any text.
//!
//! The lexer of keys gives up on a text that it does not understand. This scanner goes on: it only skips what the parser
//! takes for one token, so no text can hide tokens from it.

use super::{CLASSES, Class, after_block_comment, is_word_byte};

/// Counts tokens, up to one more than the limit. Without `conforming`, plain strings have backslash escapes.
pub(crate) fn tokens(text: &[u8], conforming: bool, limit: usize) -> usize {
    let mut scanner = Scanner { text, at: 0, conforming };
    let mut count = 0;
    while count <= limit && scanner.token() {
        count += 1;
    }
    count
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    conforming: bool,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    /// Skips a token and what stands before it; whether there was one.
    fn token(&mut self) -> bool {
        self.gap();
        let Some(byte) = self.peek(0) else { return false };
        match CLASSES[usize::from(byte)] {
            Class::Word => {
                let begin = self.at;
                self.skip_while(is_word_byte);
                if self.at == begin + 1 && self.peek(0) == Some(b'\'') {
                    match byte {
                        b'e' | b'E' => self.strings(true),
                        b'b' | b'B' | b'x' | b'X' => self.strings(false),
                        // The string is a token of its own.
                        _ => {}
                    }
                }
            }
            Class::Digit => self.skip_while(|byte| byte == b'.' || (is_word_byte(byte) && byte != b'$')),
            Class::Quote => self.strings(!self.conforming),
            Class::DoubleQuote => self.quoted(b'"', false),
            Class::Dollar => self.dollar(),
            _ => self.at += 1,
        }
        true
    }

    fn skip_while(&mut self, goes_on: impl Fn(u8) -> bool) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|byte| !goes_on(*byte)).unwrap_or(rest.len());
    }

    /// White space and comments, which nest; whether a line has ended in it.
    fn gap(&mut self) -> bool {
        let mut has_line = false;
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(byte), _) if CLASSES[usize::from(byte)] == Class::Space || byte == 0x0b => {
                    has_line |= matches!(byte, b'\n' | b'\r');
                    self.at += 1;
                }
                (Some(b'-'), Some(b'-')) => self.skip_while(|byte| !matches!(byte, b'\n' | b'\r')),
                (Some(b'/'), Some(b'*')) => {
                    self.at = after_block_comment(self.text, self.at).unwrap_or(self.text.len());
                }
                _ => return has_line,
            }
        }
    }

    /// A string, and those that continue it on other lines.
    fn strings(&mut self, has_escapes: bool) {
        loop {
            self.quoted(b'\'', has_escapes);
            let end = self.at;
            if !(self.gap() && self.peek(0) == Some(b'\'')) {
                self.at = end;
                return;
            }
        }
    }

    /// Text in quotes; one that is not closed reaches to the end.
    fn quoted(&mut self, quote: u8, has_escapes: bool) {
        self.at += 1;
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            if byte == quote {
                if self.peek(0) != Some(quote) {
                    return;
                }
                self.at += 1;
            } else if byte == b'\\' && has_escapes {
                self.at += 1;
            }
        }
        self.at = self.at.min(self.text.len());
    }

    /// A parameter, or a string in dollar quotes.
    fn dollar(&mut self) {
        let begin = self.at;
        self.at += 1;
        let is_tag = |byte: u8| is_word_byte(byte) && byte != b'$';
        if !self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
            self.skip_while(is_tag);
        }
        if self.peek(0) != Some(b'$') {
            self.skip_while(|byte| byte.is_ascii_digit());
            return;
        }
        self.at += 1;
        let tag = &self.text[begin..self.at];
        let found = self.text[self.at..].windows(tag.len()).position(|window| window == tag);
        self.at = found.map_or(self.text.len(), |found| self.at + found + tag.len());
    }
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn counts_what_the_parser_takes_for_tokens() {
        let cases: &[(&str, bool, usize)] = &[
            ("", true, 0),
            (" -- nothing\n/* at /* all */ */", true, 0),
            ("select 1, 2.5e3, $1, $tag$ many words ; $tag$", true, 8),
            ("'a\\' 'b'", true, 2),
            ("'a\\' many words'", false, 1),
            ("'a\\'' many words'", true, 1),
            ("'a\\'' many words'", false, 4),
            ("e'it\\'s one'", true, 1),
            ("e'one'\n'it\\'s still'", true, 1),
            ("u&'a;b' uescape '!'", true, 5),
            ("\"a name\" a$b$c$b$", true, 2),
            ("'not closed ( ( (", true, 1),
        ];
        for (text, conforming, count) in cases {
            assert_eq!(tokens(text.as_bytes(), *conforming, 100), *count, "{text}");
        }
        assert_eq!(tokens("1,".repeat(1_000).as_bytes(), true, 50), 51);
    }
}
