//! The start-up parameter `options`.

use wire::sqlstate;

use super::{Refusal, Settings};

impl Settings {
    /// Splits `-c name=value` and `--name=value` as the server does, and takes out the settings that Onecopy keeps.
    pub(super) fn take_options(&mut self, text: &str) -> Result<(), Refusal> {
        let wrong = |why: String| Refusal::plain(sqlstate::SYNTAX_ERROR, why);
        let mut words = split_words(text).into_iter();
        while let Some(word) = words.next() {
            let setting = if word == "-c" {
                words.next().ok_or_else(|| wrong("-c needs a value in options".to_owned()))?
            } else if let Some(setting) = word.strip_prefix("-c").or_else(|| word.strip_prefix("--")) {
                setting.to_owned()
            } else {
                return Err(wrong(format!("unknown switch {word:?} in options")));
            };
            let (name, value) = setting
                .split_once('=')
                .ok_or_else(|| wrong(format!("{setting:?} in options has no value")))?;
            let name = name.replace('-', "_").to_ascii_lowercase();
            if !self.takes_own(&name, value)? {
                let value = value.replace('\\', "\\\\").replace(' ', "\\ ");
                self.options.push_str(&format!("-c {name}={value} "));
            }
        }
        Ok(())
    }
}

/// Splits at white space. A backslash takes the next character literally.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => word.extend(chars.next()),
            c if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
