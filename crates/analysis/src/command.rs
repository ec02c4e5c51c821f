//! A command as it is typed.

/// `word` as a shell takes it for one word.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The words of a command; of a running process, which may have written one over them that says what it does, that as it is.
pub(crate) fn command_line(words: &[String], launched: bool) -> String {
    match words {
        [title] if !launched => title.clone(),
        words => {
            let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            words.join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_as_it_is_shown() {
        let words = ["./a", "--save", "", "x y", "it's", "--to=*"].map(str::to_owned);
        assert_eq!(
            command_line(&words, true),
            r"./a --save '' 'x y' 'it'\''s' '--to=*'"
        );
        let title = ["nginx: worker process".to_owned()];
        assert_eq!(command_line(&title, false), "nginx: worker process");
        assert_eq!(command_line(&title, true), "'nginx: worker process'");
    }
}
