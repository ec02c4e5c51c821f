//! What a register can hold, as far as the code says: a base that the debug info knows, plus a known
//! distance, plus a known multiple of something unknown.
//!
//! ```text
//! value  =  base  +  plus  +  times × symbol
//! ```
//!
//! Multiples are what tells `p->items[i].size` from `p[i].size`: the code multiplies the index by the
//! size of an element. Two values that meet where paths join keep what they agree on modulo the
//! greatest common divisor of what they differ by (the congruences of Granger, 1989).

use super::holder::Through;
use super::layout::{Layouts, TypeId};

/// What the distance counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// Nothing: a number.
    Number,
    /// The start of a value of this type.
    Typed(TypeId),
    /// The canonical frame address of the function.
    Frame,
    /// Paths disagree about the type.
    Conflict,
}

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    /// What the distance counts from.
    pub(super) base: Base,
    /// Known distance, bytes; of a constant the number itself.
    pub(super) plus: i64,
    /// How often the unknown `symbol` is added; zero if nothing is.
    pub(super) times: i64,
    /// Which unknown.
    pub(super) symbol: u32,
    /// What holds the pointer that it was; of a number nothing, unless it may be a pointer to an unknown type.
    pub(super) through: Through,
}

impl Value {
    /// The number `plus`.
    pub(super) fn constant(plus: i64) -> Self {
        Self {
            base: Base::Number,
            plus,
            times: 0,
            symbol: 0,
            through: Through::UNKNOWN,
        }
    }

    /// Something unknown; the same `symbol` stands for the same thing.
    pub(super) fn unknown(symbol: u32) -> Self {
        Self {
            base: Base::Number,
            plus: 0,
            times: 1,
            symbol,
            through: Through::UNKNOWN,
        }
    }

    /// `plus` bytes behind the start of `base`.
    pub(super) fn at(base: Base, plus: i64) -> Self {
        Self {
            base,
            plus,
            times: 0,
            symbol: 0,
            through: Through::UNKNOWN,
        }
    }

    /// Whether it is a number that is known.
    pub(super) fn as_constant(&self) -> Option<i64> {
        (self.base == Base::Number && self.times == 0).then_some(self.plus)
    }

    /// Whether nothing but a number is known of it.
    pub(super) fn is_number(&self) -> bool {
        self.base == Base::Number
    }

    /// The known distance from `other`, if both are the same unknown number but for that.
    pub(super) fn distance_from(self, other: Self) -> Option<i64> {
        let unknown = self.is_number() && other.is_number() && self.times == 1;
        (unknown && other.times == 1 && self.symbol == other.symbol)
            .then(|| self.plus.wrapping_sub(other.plus))
    }

    /// The sum; `symbol` is for what is unknown of it.
    pub(super) fn add(self, other: Self, symbol: u32) -> Self {
        let (base, through) = match (self.base, other.base) {
            (Base::Number, Base::Number) => (Base::Number, self.through.of_sum(other.through)),
            (base, Base::Number) => (base, self.through),
            (Base::Number, base) => (base, other.through),
            _ => return Self::unknown(symbol),
        };
        let (times, symbol) = match (self.times, other.times) {
            (times, 0) => (times, self.symbol),
            (0, times) => (times, other.symbol),
            (a, b) if self.symbol == other.symbol => (a.wrapping_add(b), self.symbol),
            (a, b) => (divisor(a, b), symbol),
        };
        Self {
            base,
            plus: self.plus.wrapping_add(other.plus),
            times,
            symbol: if times == 0 { 0 } else { symbol },
            through,
        }
    }

    /// The difference; likewise.
    pub(super) fn subtract(self, other: Self, symbol: u32) -> Self {
        match other.base {
            Base::Number => self.add(other.multiply(-1), symbol),
            _ if self.base == other.base => {
                let number = |value: Self| Self {
                    base: Base::Number,
                    through: Through::UNKNOWN,
                    ..value
                };
                number(self).add(number(other).multiply(-1), symbol)
            }
            _ => Self::unknown(symbol),
        }
    }

    /// A number, multiplied; of an address nothing is known then.
    pub(super) fn multiply(self, factor: i64) -> Self {
        if factor == 1 {
            return self;
        }
        Self {
            plus: self.plus.wrapping_mul(factor),
            times: self.times.wrapping_mul(factor),
            through: Through::UNKNOWN,
            ..self
        }
    }

    /// What is known where this value and `other` meet. What one path does not know it takes from
    /// the other: they are one variable. `symbol` stands for what differs.
    pub(super) fn join(self, other: Self, symbol: u32, layouts: &Layouts<'_, '_>) -> Self {
        if self == other {
            return self;
        }
        let through = match (self.base, other.base) {
            (Base::Frame, Base::Typed(_)) | (Base::Typed(_), Base::Frame) => Through::SEVERAL,
            // Whatever types it has on the way, it can come from one place.
            _ => self.through.join(other.through),
        };
        let joined = match (self.base, other.base) {
            // Raw memory, whatever else it is taken for on the way.
            (Base::Typed(bytes), _) if layouts.is_byte(bytes) && !other.is_number() => {
                Self::at(self.base, 0)
            }
            (_, Base::Typed(bytes)) if layouts.is_byte(bytes) && !self.is_number() => {
                Self::at(other.base, 0)
            }
            (Base::Conflict, _) | (_, Base::Conflict) => Self::at(Base::Conflict, 0),
            // A buffer in the frame, or what was allocated where that is too small.
            (Base::Frame, Base::Number) if other.as_constant().is_none() => Self::unknown(symbol),
            (Base::Number, Base::Frame) if self.as_constant().is_none() => Self::unknown(symbol),
            (Base::Number, Base::Number) => self.merge(other, symbol),
            (Base::Number, _) => other,
            (_, Base::Number) => self,
            (Base::Frame, Base::Frame) => self.merge(other, symbol),
            (Base::Typed(a), Base::Typed(b)) if layouts.same(a, b) => self.merge(other, symbol),
            _ => Self::at(Base::Conflict, 0),
        };
        Self { through, ..joined }
    }

    fn merge(self, other: Self, symbol: u32) -> Self {
        let same_unknown = self.symbol == other.symbol && self.times == other.times;
        let distance = self.plus.wrapping_sub(other.plus);
        let times = divisor(divisor(self.times, other.times), distance);
        Self {
            base: self.base,
            // The lowest representative, so that joining again gives the same.
            plus: if times == 0 {
                self.plus
            } else {
                self.plus.rem_euclid(times)
            },
            times,
            symbol: match times {
                0 => 0,
                _ if same_unknown && distance == 0 => self.symbol,
                _ => symbol,
            },
            through: self.through,
        }
    }
}

/// The greatest common divisor, zero for two zeros.
pub(super) fn divisor(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_and_subtractions_give_the_multiple_that_they_are() {
        let index = Value::unknown(7);
        // lea rax,[rcx+rcx*4]; shl rax,3
        let forty = index.add(index.multiply(4), 9).multiply(8);
        assert_eq!((forty.times, forty.symbol), (40, 7));
        // mov rdx,rcx; shl rdx,4; sub rdx,rcx
        let fifteen = index.multiply(16).subtract(index, 9);
        assert_eq!((fifteen.times, fifteen.plus), (15, 0));
    }

    #[test]
    fn two_unknowns_keep_what_both_are_multiples_of() {
        let sum = Value::unknown(1)
            .multiply(24)
            .add(Value::unknown(2).multiply(16), 3);
        assert_eq!((sum.times, sum.symbol), (8, 3));
    }

    #[test]
    fn a_pointer_is_still_one_after_an_offset_and_two_are_a_distance() {
        let kind = Base::Frame;
        let far = Value::at(kind, 8).add(Value::constant(16), 1);
        assert_eq!(far, Value::at(kind, 24));
        assert_eq!(far.subtract(Value::at(kind, 4), 1).as_constant(), Some(20));
    }
}
