//! What the phases of a session loop access: lines by session and phase, how often they are written, and how
//! often they are accessed beside others.

use super::element::{BITS, ELEMENTS, LINE};
use super::error::{AccesstestError, count_within, within};
use std::str::FromStr;

/// The most phases.
pub const MAX_PHASES: usize = 1024;

/// Accesses to some lines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accesses {
    /// The share of accesses that write, 0 to 1.
    pub update: f64,
    /// How many accesses there are, relative to other groups; as many as the usual law gives if `None`.
    pub weight: Option<f64>,
}

/// Lines that are accessed in one phase only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    /// How many lines of 64 bytes: for each session, or for all together.
    pub lines: u64,
    /// How they are accessed.
    pub accesses: Accesses,
}

/// What one phase accesses alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseLocal {
    /// Lines of each session's own.
    pub session_local: Group,
    /// Lines that all sessions access.
    pub session_global: Group,
}

/// How one phase accesses lines that other phases access, too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sharer {
    /// The phase's index.
    pub phase: usize,
    /// Its accesses to each session's own lines.
    pub session_local: Accesses,
    /// Its accesses to those that all sessions access.
    pub session_global: Accesses,
}

/// Lines that several phases access.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseGlobal {
    /// Lines of each session's own.
    pub session_local: u64,
    /// Lines that all sessions access.
    pub session_global: u64,
    /// The phases, at least two.
    pub sharers: Vec<Sharer>,
}

/// What a session loop accesses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Characteristics {
    /// What each phase accesses alone.
    pub phases: Vec<PhaseLocal>,
    /// What several phases access.
    pub shared: Vec<PhaseGlobal>,
}

const LOCAL_EXAMPLE: &str = "lines[,update[,weight]]/lines[,update[,weight]], as 0/256,0.1";
const GLOBAL_EXAMPLE: &str =
    "lines/lines:phase[,update,update[,weight,weight]]/phase..., as 2/8:0,0.1,0/1";

pub(super) fn number<T: FromStr>(
    part: &str,
    whole: &str,
    (what, example): (&'static str, &'static str),
) -> Result<T, AccesstestError> {
    part.trim().parse().map_err(|_| AccesstestError::Syntax {
        given: whole.to_owned(),
        what,
        why: format!("{part:?} is not a number of the right sort"),
        example,
    })
}

const LOCAL: (&str, &str) = ("characteristic of a phase", LOCAL_EXAMPLE);
const GLOBAL: (&str, &str) = ("characteristic of shared lines", GLOBAL_EXAMPLE);

fn wrong((what, example): (&'static str, &'static str), given: &str, why: &str) -> AccesstestError {
    AccesstestError::Syntax {
        given: given.to_owned(),
        what,
        why: why.to_owned(),
        example,
    }
}

fn group(part: &str, whole: &str) -> Result<Group, AccesstestError> {
    let fields: Vec<&str> = part.split(',').collect();
    if fields.len() > 3 {
        return Err(wrong(
            LOCAL,
            whole,
            "more than three numbers on one side of the slash",
        ));
    }
    let lines = number(fields[0], whole, LOCAL)?;
    let accesses = accesses(fields.get(1), fields.get(2), whole, LOCAL)?;
    Ok(Group { lines, accesses })
}

/// An update ratio and a weight, each if it is there. Checked here, where they are as they were written.
fn accesses(
    update: Option<&&str>,
    weight: Option<&&str>,
    whole: &str,
    sort: (&'static str, &'static str),
) -> Result<Accesses, AccesstestError> {
    let mut read = Accesses::default();
    if let Some(update) = update {
        read.update = number(update, whole, sort)?;
        check_update(read.update, update)?;
    }
    if let Some(weight) = weight {
        let number = number(weight, whole, sort)?;
        check_weight(number, weight)?;
        read.weight = Some(number);
    }
    Ok(read)
}

fn check_update(update: f64, written: &str) -> Result<(), AccesstestError> {
    within("an update ratio", (0.0, 1.0), update, written)
}

fn check_weight(weight: f64, written: &str) -> Result<(), AccesstestError> {
    within("a weight", (f64::MIN_POSITIVE, 1e15), weight, written)
}

impl FromStr for PhaseLocal {
    type Err = AccesstestError;

    /// `lines[,update[,weight]]/lines[,update[,weight]]`: those of each session, and of all.
    fn from_str(text: &str) -> Result<Self, AccesstestError> {
        let (local, global) = text
            .split_once('/')
            .ok_or_else(|| wrong(LOCAL, text, "there is no slash"))?;
        Ok(Self {
            session_local: group(local, text)?,
            session_global: group(global, text)?,
        })
    }
}

impl FromStr for PhaseGlobal {
    type Err = AccesstestError;

    /// `lines/lines:phase[,update,update[,weight,weight]]/phase...`.
    fn from_str(text: &str) -> Result<Self, AccesstestError> {
        let (lines, phases) = text
            .split_once(':')
            .ok_or_else(|| wrong(GLOBAL, text, "there is no colon"))?;
        let (local, global) = lines
            .split_once('/')
            .ok_or_else(|| wrong(GLOBAL, text, "there is no slash before the colon"))?;
        let sharers: Result<Vec<_>, _> = phases.split('/').map(|one| sharer(one, text)).collect();
        let sharers = sharers?;
        if sharers.len() < 2 {
            return Err(wrong(
                GLOBAL,
                text,
                "lines are shared by two phases or more",
            ));
        }
        Ok(Self {
            session_local: number(local, text, GLOBAL)?,
            session_global: number(global, text, GLOBAL)?,
            sharers,
        })
    }
}

fn sharer(part: &str, whole: &str) -> Result<Sharer, AccesstestError> {
    let fields: Vec<&str> = part.split(',').collect();
    if !matches!(fields.len(), 1 | 3 | 5) {
        let why = "a phase has none or two update ratios, and none or two weights after them";
        return Err(wrong(GLOBAL, whole, why));
    }
    let accesses = |update, weight| accesses(fields.get(update), fields.get(weight), whole, GLOBAL);
    Ok(Sharer {
        phase: number(fields[0], whole, GLOBAL)?,
        session_local: accesses(1, 3)?,
        session_global: accesses(2, 4)?,
    })
}

impl Accesses {
    fn check(self) -> Result<(), AccesstestError> {
        check_update(self.update, &self.update.to_string())?;
        self.weight
            .map_or(Ok(()), |weight| check_weight(weight, &weight.to_string()))
    }
}

impl Characteristics {
    /// So many lines that all sessions access, cut evenly into phases.
    ///
    /// # Errors
    /// [`AccesstestError::Phases`], [`AccesstestError::Range`].
    pub fn even(lines: u64, phases: usize, update: f64) -> Result<Self, AccesstestError> {
        count_within("phases", 1, MAX_PHASES, phases)?;
        check_update(update, &update.to_string())?;
        let count = phases as u64;
        if lines < count {
            return Err(AccesstestError::Phases {
                phases: count,
                lines,
            });
        }
        let phase = |index: u64| PhaseLocal {
            session_global: Group {
                lines: lines / count + u64::from(index < lines % count),
                accesses: Accesses {
                    update,
                    weight: None,
                },
            },
            ..PhaseLocal::default()
        };
        Ok(Self {
            phases: (0..count).map(phase).collect(),
            shared: Vec::new(),
        })
    }

    /// Lines of one session's own.
    pub(super) fn session_local_lines(&self) -> u64 {
        let alone = self.phases.iter().map(|phase| phase.session_local.lines);
        let shared = self.shared.iter().map(|shared| shared.session_local);
        alone.chain(shared).fold(0, u64::saturating_add)
    }

    /// Lines that all sessions access.
    pub(super) fn session_global_lines(&self) -> u64 {
        let alone = self.phases.iter().map(|phase| phase.session_global.lines);
        let shared = self.shared.iter().map(|shared| shared.session_global);
        alone.chain(shared).fold(0, u64::saturating_add)
    }

    /// The working set of so many sessions, bytes.
    #[must_use]
    pub fn bytes(&self, sessions: usize) -> u64 {
        let local = self.session_local_lines().saturating_mul(sessions as u64);
        let lines = local.saturating_add(self.session_global_lines());
        lines.saturating_mul(LINE)
    }

    /// An error where no path is like this.
    pub(super) fn check(&self) -> Result<(), AccesstestError> {
        count_within("phases", 1, MAX_PHASES, self.phases.len())?;
        let mut lines: Vec<u64> = Vec::new();
        for phase in &self.phases {
            phase.session_local.accesses.check()?;
            phase.session_global.accesses.check()?;
            lines.push(
                phase
                    .session_local
                    .lines
                    .saturating_add(phase.session_global.lines),
            );
        }
        for shared in &self.shared {
            if shared.sharers.len() as u64 > ELEMENTS {
                return Err(AccesstestError::Sharers {
                    phases: shared.sharers.len(),
                });
            }
            for (index, sharer) in shared.sharers.iter().enumerate() {
                sharer.session_local.check()?;
                sharer.session_global.check()?;
                let Some(mine) = lines.get_mut(sharer.phase) else {
                    return Err(AccesstestError::NoPhase {
                        phase: sharer.phase,
                        phases: self.phases.len(),
                    });
                };
                let named = &shared.sharers[..index];
                if named.iter().any(|other| other.phase == sharer.phase) {
                    let phase = format!("phase {} is named twice", sharer.phase);
                    return Err(wrong(GLOBAL, "the list of phases", &phase));
                }
                let these = shared.session_local.saturating_add(shared.session_global);
                *mine = mine.saturating_add(these);
            }
        }
        let most = (1_u64 << BITS) / ELEMENTS - 1;
        for buffer in [self.session_local_lines(), self.session_global_lines()] {
            if buffer > most {
                return Err(AccesstestError::TooLarge {
                    bytes: buffer.saturating_mul(LINE),
                    most: most * LINE,
                });
            }
        }
        match lines.iter().position(|lines| *lines == 0) {
            Some(phase) => Err(AccesstestError::Empty { phase }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thesis_syntax_is_read() {
        let phase: PhaseLocal = "0/256,0.1".parse().unwrap();
        assert_eq!(phase.session_local, Group::default());
        assert_eq!(phase.session_global.lines, 256);
        assert_eq!(phase.session_global.accesses.update, 0.1);
        let phase: PhaseLocal = "3,1,2/4,0,17.5".parse().unwrap();
        assert_eq!(phase.session_local.accesses.weight, Some(2.0));
        assert_eq!(phase.session_global.accesses.weight, Some(17.5));
        let shared: PhaseGlobal = "2/8:0,0.1,0.2,3,4/1".parse().unwrap();
        assert_eq!((shared.session_local, shared.session_global), (2, 8));
        assert_eq!(shared.sharers[0].session_global.update, 0.2);
        assert_eq!(shared.sharers[0].session_local.weight, Some(3.0));
        assert_eq!(shared.sharers[1].session_local, Accesses::default());
    }

    #[test]
    fn what_is_no_characteristic_says_what_is() {
        for text in ["", "5", "a/5", "1/2,x", "1/2,0,0,0", "-1/2"] {
            let error = text.parse::<PhaseLocal>().unwrap_err().to_string();
            assert!(error.contains("0/256,0.1"), "{error}");
        }
        for text in ["1/2", "1:0/1", "1/2:0", "1/2:0,0.1/1", "1/2:0,0,0,0/1"] {
            let error = text.parse::<PhaseGlobal>().unwrap_err().to_string();
            assert!(error.contains("2/8:0,0.1,0/1"), "{error}");
        }
    }

    #[test]
    fn lines_are_cut_evenly_and_no_phase_is_empty() {
        let even = Characteristics::even(11, 3, 0.5).unwrap();
        let lines: Vec<u64> = even
            .phases
            .iter()
            .map(|one| one.session_global.lines)
            .collect();
        assert_eq!(lines, [4, 4, 3]);
        assert_eq!(even.bytes(100), 11 * 64);
        assert!(even.check().is_ok());
        let error = Characteristics::even(2, 3, 0.0).unwrap_err();
        assert!(matches!(
            error,
            AccesstestError::Phases {
                phases: 3,
                lines: 2
            }
        ));
        assert!(Characteristics::even(8, 2, 1.5).is_err());
    }

    #[test]
    fn what_no_path_can_be_is_refused() {
        let check = |phases: &[&str], shared: &[&str]| {
            Characteristics {
                phases: phases.iter().map(|text| text.parse().unwrap()).collect(),
                shared: shared.iter().map(|text| text.parse().unwrap()).collect(),
            }
            .check()
        };
        assert!(check(&["0/0", "0/4"], &["0/1:0/1"]).is_ok());
        assert!(matches!(
            check(&["0/0", "0/4"], &[]),
            Err(AccesstestError::Empty { phase: 0 })
        ));
        let missing = check(&["0/1"], &["0/1:0/1"]);
        assert!(matches!(
            missing,
            Err(AccesstestError::NoPhase {
                phase: 1,
                phases: 1
            })
        ));
        let twice = check(&["0/1", "0/1"], &["0/1:0/0"]);
        assert!(matches!(twice, Err(AccesstestError::Syntax { .. })));
        for text in [
            "0/1,1.1",
            "0/1,-0.1",
            "0/1,NaN",
            "0/1,0,0",
            "0/1,0,-1",
            "0/1,0,inf",
        ] {
            let refused = text.parse::<PhaseLocal>();
            assert!(
                matches!(refused, Err(AccesstestError::Range { .. })),
                "{text}"
            );
        }
        let many = check(&["0/99999999999"], &[]);
        assert!(matches!(many, Err(AccesstestError::TooLarge { .. })));
        let all = vec!["0/1"; 17];
        let named = (0..17)
            .map(|it| it.to_string())
            .collect::<Vec<_>>()
            .join("/");
        let shared = check(&all, &[&format!("0/1:{named}")]);
        assert!(matches!(
            shared,
            Err(AccesstestError::Sharers { phases: 17 })
        ));
    }
}
