//! What the tracer is told when it is loaded: words behind its path, and a text in the shared memory.

use super::guest::Wanted;
use crate::program::Qemu;

/// The words behind the plugin's path.
#[derive(Default)]
pub(super) struct Arguments {
    pub(super) region: Option<String>,
    /// A program was replaced by this one: see [`exec`].
    pub(super) again: bool,
    /// Addresses were made the same in every run: see [`exec::hide_fixed_addresses`].
    pub(super) fixed: bool,
    pub(super) unknown: Option<String>,
}

impl Arguments {
    pub(super) fn of(words: impl Iterator<Item = String>) -> Self {
        let mut this = Self::default();
        for word in words {
            match word.split_once('=') {
                Some(("region", value)) => this.region = Some(value.to_owned()),
                Some(("again", value)) => this.again = value == "on",
                Some(("fixed", value)) => this.fixed = value == "on",
                _ => this.unknown = Some(word),
            }
        }
        this
    }
}

/// One for each kind of value of the configuration, which is a list of `key=value` that end in NUL.
#[derive(Default)]
pub(super) struct Configuration {
    pub(super) qemu: Qemu,
    pub(super) wanted: Vec<Wanted>,
    /// Lines that one thread alone touches are left out, but for those that hold chosen units: their size
    /// and one in how many.
    pub(super) leaves_own: bool,
    /// The order of the threads is made, see [`order`].
    pub(super) makes_order: bool,
    pub(super) whole: Vec<(u32, u32)>,
    /// Where the memory for rules is, see [`heap`]; the recorder's returns are told, too.
    pub(super) heap: Option<Vec<u8>>,
    pub(super) heap_returns: bool,
}

impl Configuration {
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut this = Self::default();
        for entry in text
            .split(|&byte| byte == 0)
            .filter(|entry| !entry.is_empty())
        {
            let malformed = || format!("bad configuration: {}", String::from_utf8_lossy(entry));
            let at = entry
                .iter()
                .position(|&byte| byte == b'=')
                .ok_or_else(malformed)?;
            let value = &entry[at + 1..];
            match &entry[..at] {
                b"qemu" => this.qemu.path = value.to_vec(),
                b"option" => this.qemu.options.push(value.to_vec()),
                b"plugin" => this.qemu.plugin = value.to_vec(),
                b"only-module" => this.wanted.push(Wanted {
                    module: value.to_vec(),
                    ranges: Vec::new(),
                }),
                b"only-range" => {
                    let range = std::str::from_utf8(value)
                        .ok()
                        .and_then(|text| text.split_once('-'))
                        .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
                    let module = this.wanted.last_mut().ok_or_else(malformed)?;
                    module.ranges.push(range.ok_or_else(malformed)?);
                }
                b"leave-own" => this.leaves_own = true,
                b"order" => this.makes_order = value == b"made",
                b"heap" => this.heap = Some(value.to_vec()),
                b"heap-returns" => this.heap_returns = true,
                b"whole" => {
                    let unit = std::str::from_utf8(value)
                        .ok()
                        .and_then(|text| text.split_once('/'))
                        .and_then(|(bytes, one_in)| {
                            Some((bytes.parse().ok()?, one_in.parse().ok()?))
                        });
                    this.whole.push(unit.ok_or_else(malformed)?);
                }
                _ => return Err(malformed()),
            }
        }
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_and_nonsense_is_refused() {
        let text =
            b"qemu=/q\0option=-cpu\0option=max\0plugin=/p\0only-module=/m\0only-range=16-32\0";
        let configuration = Configuration::parse(text).unwrap();
        assert_eq!(configuration.qemu.path, b"/q");
        assert_eq!(
            configuration.qemu.options,
            [b"-cpu".to_vec(), b"max".to_vec()]
        );
        assert_eq!(configuration.qemu.plugin, b"/p");
        assert_eq!(
            configuration.wanted,
            [Wanted {
                module: b"/m".to_vec(),
                ranges: vec![(16, 32)]
            }]
        );
        for text in [
            &b"what=1\0"[..],
            b"qemu",
            b"only-range=1-2\0",
            b"only-module=m\0only-range=x\0",
        ] {
            assert!(Configuration::parse(text).is_err());
        }
    }
}
