//! What is folded: one source for kernels and CPU loops.
//!
//! A fold's state is two words, of which most need one. States meet in one shape only (see the
//! [module](super)); a fold says what an element adds to a state and how two states join. The
//! state at the start changes nothing it is joined to.

use crate::ieee::Ieee;
use crate::prim;
use cubecl::prelude::*;

#[derive(CubeType, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) a: u32,
    pub(crate) b: u32,
}

#[cube]
pub(crate) trait Fold: Send + Sync + 'static {
    /// The state of no element.
    fn start() -> State;

    /// The state after the element `x` at place `i`; `shift` is the word given for its row,
    /// column or segment.
    fn step(ieee: &Ieee, s: State, x: u32, i: u32, shift: u32) -> State;

    /// The state of the elements of `s` and `t`.
    fn join(ieee: &Ieee, s: State, t: State) -> State;

    /// The result for `n` elements.
    fn finish(ieee: &Ieee, s: State, n: u32, ddof: u32) -> u32;
}

/// A fold as a value, and what a schedule needs to know of it. Kernels are expanded from it, so
/// that schedules on GPUs are compiled once for all folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    fold: Name,
    pub(crate) name: &'static str,
    /// Both words of the state count.
    pub(crate) wide: bool,
    /// `step` looks at the place.
    pub(crate) placed: bool,
    /// `step` looks at the shift.
    pub(crate) shifted: bool,
}

impl Kind {
    const fn new(fold: Name, name: &'static str) -> Self {
        Self {
            fold,
            name,
            wide: false,
            placed: false,
            shifted: false,
        }
    }

    const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }

    const fn placed(self) -> Self {
        Self {
            placed: true,
            ..self
        }
    }

    const fn shifted(self) -> Self {
        Self {
            shifted: true,
            ..self
        }
    }
}

impl Kind {
    /// Whether `step` holds a fused multiply-add.
    pub(crate) const fn fused(self) -> bool {
        matches!(self.fold, Name::SumSquares | Name::Variance)
    }
}

/// An extreme of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extreme {
    pub(super) greatest: bool,
    /// Its first place is wanted, and zeros are equal.
    pub(super) placed: bool,
}

impl Kind {
    /// Whether it is a sum of which a zero changes no state.
    pub(super) const fn sum(self) -> bool {
        matches!(self.fold, Name::Sum | Name::Mean | Name::SumSquares)
    }

    /// Whether the result does not depend on the order.
    pub(super) const fn exact(self) -> bool {
        !matches!(
            self.fold,
            Name::Sum | Name::Mean | Name::SumSquares | Name::Variance
        )
    }

    /// The extreme that is folded, if it is one of numbers.
    pub(super) const fn extreme(self) -> Option<Extreme> {
        let (greatest, placed) = match self.fold {
            Name::Min => (false, false),
            Name::Max => (true, false),
            Name::ArgMin => (false, true),
            Name::ArgMax => (true, true),
            _ => return None,
        };
        Some(Extreme { greatest, placed })
    }
}

/// A fold as a type, for which CPU loops are compiled.
pub(crate) trait Traits: Fold {
    const KIND: Kind;
}

const INVALID: u32 = 0xffff_ffff;

#[cube]
#[inline(always)]
fn one(a: u32) -> State {
    State { a, b: 0u32 }
}

#[cube]
#[inline(always)]
fn sum(ieee: &Ieee, a: u32, b: u32) -> u32 {
    prim::bits(ieee.add(prim::from_bits(a), prim::from_bits(b)))
}

#[cube]
#[inline(always)]
fn lesser(a: u32, b: u32) -> u32 {
    prim::select_u32(b < a, b, a)
}

/// The order of numbers as words, a NaN lowest.
#[cube]
#[inline(always)]
fn key_nan_low(ieee: &Ieee, x: u32) -> u32 {
    let x = prim::from_bits(x);
    prim::select_u32(ieee.is_nan(x), 0u32, ieee.total_key(x))
}

/// A type, a name and a case of the expansions for each fold.
macro_rules! folds {
    ($($(#[$doc:meta])* $Fold:ident = $name:literal $(, $property:ident)*;)+) => {
        $(
            $(#[$doc])*
            pub(crate) struct $Fold;

            impl Traits for $Fold {
                const KIND: Kind = Kind::new(Name::$Fold, $name)$(.$property())*;
            }
        )+

        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        enum Name {
            $($Fold,)+
        }

        impl Kind {
            /// Every fold.
            pub(super) const ALL: &'static [Self] = &[$($Fold::KIND),+];
        }

        /// [`Fold::start`] of a fold.
        #[cube]
        pub(super) fn start(#[comptime] kind: Kind) -> State {
            match comptime!(kind.fold) {
                $(Name::$Fold => $Fold::start(),)+
            }
        }

        /// [`Fold::step`] of a fold.
        #[cube]
        pub(super) fn step(
            ieee: &Ieee,
            s: State,
            x: u32,
            i: u32,
            shift: u32,
            #[comptime] kind: Kind,
        ) -> State {
            match comptime!(kind.fold) {
                $(Name::$Fold => $Fold::step(ieee, s, x, i, shift),)+
            }
        }

        /// [`Fold::join`] of a fold.
        #[cube]
        pub(super) fn join(ieee: &Ieee, s: State, t: State, #[comptime] kind: Kind) -> State {
            match comptime!(kind.fold) {
                $(Name::$Fold => $Fold::join(ieee, s, t),)+
            }
        }

        /// [`Fold::finish`] of a fold.
        #[cube]
        pub(super) fn finish(
            ieee: &Ieee,
            s: State,
            n: u32,
            ddof: u32,
            #[comptime] kind: Kind,
        ) -> u32 {
            match comptime!(kind.fold) {
                $(Name::$Fold => $Fold::finish(ieee, s, n, ddof),)+
            }
        }
    };
}

folds! {
    /// The sum.
    Sum = "sum";
    /// The sum over the number of elements.
    Mean = "mean";
    /// The sum of squares.
    SumSquares = "sum_squares";
    /// The variance from the deviations `x - shift`: squares in `a`, the deviations in `b`.
    Variance = "variance", wide, shifted;
    /// The least number, as a key: a NaN is below all.
    Min = "min";
    /// The greatest number, as an inverted key: a NaN is above all.
    Max = "max";
    /// The place of the least number: `a` its key, `b` the place.
    ArgMin = "argmin", wide, placed;
    /// The place of the greatest number: `a` its inverted key, `b` the place.
    ArgMax = "argmax", wide, placed;
    /// The greatest finite magnitude.
    LargestFinite = "largest_finite";
    /// Whether a word is not 0.
    Any = "any";
    /// Whether every word is not 0.
    All = "all";
    /// The number of words that are not 0.
    Count = "count";
    /// The sum modulo 2^32.
    SumWords = "sum_words";
    /// The least word.
    MinWord = "min_word";
    /// The greatest word.
    MaxWord = "max_word";
}

#[cube]
impl Fold for Sum {
    #[inline(always)]
    fn start() -> State {
        one(0u32)
    }
    #[inline(always)]
    fn step(ieee: &Ieee, s: State, x: u32, _i: u32, _shift: u32) -> State {
        one(sum(ieee, s.a, x))
    }
    #[inline(always)]
    fn join(ieee: &Ieee, s: State, t: State) -> State {
        one(sum(ieee, s.a, t.a))
    }
    #[inline(always)]
    fn finish(ieee: &Ieee, s: State, _n: u32, _ddof: u32) -> u32 {
        prim::bits(ieee.canonical(prim::from_bits(s.a)))
    }
}

#[cube]
impl Fold for Mean {
    #[inline(always)]
    fn start() -> State {
        one(0u32)
    }
    #[inline(always)]
    fn step(ieee: &Ieee, s: State, x: u32, _i: u32, _shift: u32) -> State {
        one(sum(ieee, s.a, x))
    }
    #[inline(always)]
    fn join(ieee: &Ieee, s: State, t: State) -> State {
        one(sum(ieee, s.a, t.a))
    }
    #[inline(always)]
    fn finish(ieee: &Ieee, s: State, n: u32, _ddof: u32) -> u32 {
        let mean = ieee.div(prim::from_bits(s.a), ieee.from_u32(n));
        prim::bits(ieee.canonical(mean))
    }
}

#[cube]
impl Fold for SumSquares {
    #[inline(always)]
    fn start() -> State {
        one(0u32)
    }
    #[inline(always)]
    fn step(ieee: &Ieee, s: State, x: u32, _i: u32, _shift: u32) -> State {
        let x = prim::from_bits(x);
        one(prim::bits(ieee.fma(x, x, prim::from_bits(s.a))))
    }
    #[inline(always)]
    fn join(ieee: &Ieee, s: State, t: State) -> State {
        one(sum(ieee, s.a, t.a))
    }
    #[inline(always)]
    fn finish(ieee: &Ieee, s: State, _n: u32, _ddof: u32) -> u32 {
        prim::bits(ieee.canonical(prim::from_bits(s.a)))
    }
}

#[cube]
impl Fold for Variance {
    #[inline(always)]
    fn start() -> State {
        one(0u32)
    }
    #[inline(always)]
    fn step(ieee: &Ieee, s: State, x: u32, _i: u32, shift: u32) -> State {
        let d = ieee.sub(prim::from_bits(x), prim::from_bits(shift));
        State {
            a: prim::bits(ieee.fma(d, d, prim::from_bits(s.a))),
            b: sum(ieee, s.b, prim::bits(d)),
        }
    }
    #[inline(always)]
    fn join(ieee: &Ieee, s: State, t: State) -> State {
        State {
            a: sum(ieee, s.a, t.a),
            b: sum(ieee, s.b, t.b),
        }
    }
    /// The rounding of the mean shifts every deviation alike; the second term takes it out
    /// (Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983).
    #[inline(always)]
    fn finish(ieee: &Ieee, s: State, n: u32, ddof: u32) -> u32 {
        let squares = prim::from_bits(s.a);
        let rest = prim::from_bits(s.b);
        let shifted = ieee.mul(ieee.div(rest, ieee.from_u32(n)), rest);
        let centred = ieee.sub(squares, shifted);
        let centred = ieee.select(ieee.is_finite(shifted), centred, squares);
        let centred = ieee.max(centred, prim::from_bits(0u32));
        let over = prim::wrapping_sub(n, ddof);
        let r = ieee.canonical(ieee.div(centred, ieee.from_u32(over)));
        prim::select_u32(n <= ddof, 0x7fc0_0000u32, prim::bits(r))
    }
}

#[cube]
impl Fold for Min {
    #[inline(always)]
    fn start() -> State {
        one(INVALID)
    }
    #[inline(always)]
    fn step(ieee: &Ieee, s: State, x: u32, _i: u32, _shift: u32) -> State {
        one(lesser(s.a, key_nan_low(ieee, x)))
    }
    #[inline(always)]
    fn join(_ieee: &Ieee, s: State, t: State) -> State {
        one(lesser(s.a, t.a))
    }
    #[inline(always)]
    fn finish(ieee: &Ieee, s: State, _n: u32, _ddof: u32) -> u32 {
        prim::bits(ieee.from_total_key(s.a))
    }
}

#[cube]
impl Fold for Max {
    #[inline(always)]
    fn start() -> State {
        one(INVALID)
    }
    #[inline(always)]
    fn step(ieee: &Ieee, s: State, x: u32, _i: u32, _shift: u32) -> State {
        one(lesser(s.a, !ieee.total_key(prim::from_bits(x))))
    }
    #[inline(always)]
    fn join(_ieee: &Ieee, s: State, t: State) -> State {
        one(lesser(s.a, t.a))
    }
    #[inline(always)]
    fn finish(ieee: &Ieee, s: State, _n: u32, _ddof: u32) -> u32 {
        prim::bits(ieee.from_total_key(!s.a))
    }
}

/// The state with the lesser key, of equal ones that with the lower place (`N10`).
#[cube]
#[inline(always)]
fn first(s: State, t: State) -> State {
    let other = t.a < s.a || (t.a == s.a && t.b < s.b);
    State {
        a: prim::select_u32(other, t.a, s.a),
        b: prim::select_u32(other, t.b, s.b),
    }
}

#[cube]
impl Fold for ArgMin {
    #[inline(always)]
    fn start() -> State {
        State {
            a: INVALID,
            b: INVALID,
        }
    }
    #[inline(always)]
    fn step(ieee: &Ieee, s: State, x: u32, i: u32, _shift: u32) -> State {
        let x = prim::from_bits(x);
        let a = prim::select_u32(ieee.is_nan(x), 0u32, ieee.order_key(x));
        first(s, State { a, b: i })
    }
    #[inline(always)]
    fn join(_ieee: &Ieee, s: State, t: State) -> State {
        first(s, t)
    }
    #[inline(always)]
    fn finish(_ieee: &Ieee, s: State, _n: u32, _ddof: u32) -> u32 {
        s.b
    }
}

#[cube]
impl Fold for ArgMax {
    #[inline(always)]
    fn start() -> State {
        State {
            a: INVALID,
            b: INVALID,
        }
    }
    #[inline(always)]
    fn step(ieee: &Ieee, s: State, x: u32, i: u32, _shift: u32) -> State {
        let a = !ieee.order_key(prim::from_bits(x));
        first(s, State { a, b: i })
    }
    #[inline(always)]
    fn join(_ieee: &Ieee, s: State, t: State) -> State {
        first(s, t)
    }
    #[inline(always)]
    fn finish(_ieee: &Ieee, s: State, _n: u32, _ddof: u32) -> u32 {
        s.b
    }
}

#[cube]
#[inline(always)]
fn truth(x: u32) -> u32 {
    prim::select_u32(x != 0u32, 1u32, 0u32)
}

#[cube]
#[inline(always)]
fn greater(a: u32, b: u32) -> u32 {
    prim::select_u32(a < b, b, a)
}

/// The bits of a finite number's magnitude, which order as it does; 0 of others.
#[cube]
#[inline(always)]
fn finite_magnitude(x: u32) -> u32 {
    let magnitude = x & 0x7fff_ffffu32;
    prim::select_u32(magnitude < 0x7f80_0000u32, magnitude, 0u32)
}

/// Folds of words whose step and join are the same but for what `step` makes of a word.
macro_rules! words {
    ($($Fold:ident: $start:expr, |$x:ident| $lift:expr, |$s:ident, $t:ident| $join:expr;)+) => {$(
        #[cube]
        impl Fold for $Fold {
            #[inline(always)]
            fn start() -> State {
                one($start)
            }
            #[inline(always)]
            fn step(_ieee: &Ieee, s: State, x: u32, _i: u32, _shift: u32) -> State {
                let $s = s.a;
                let $x = x;
                let $t = $lift;
                one($join)
            }
            #[inline(always)]
            fn join(_ieee: &Ieee, s: State, t: State) -> State {
                let $s = s.a;
                let $t = t.a;
                one($join)
            }
            #[inline(always)]
            fn finish(_ieee: &Ieee, s: State, _n: u32, _ddof: u32) -> u32 {
                s.a
            }
        }
    )+};
}

words! {
    LargestFinite: 0u32, |x| finite_magnitude(x), |s, t| greater(s, t);
    Any: 0u32, |x| truth(x), |s, t| s | t;
    All: 1u32, |x| truth(x), |s, t| s & t;
    Count: 0u32, |x| truth(x), |s, t| prim::wrapping_add(s, t);
    SumWords: 0u32, |x| x, |s, t| prim::wrapping_add(s, t);
    MinWord: u32::MAX, |x| x, |s, t| lesser(s, t);
    MaxWord: 0u32, |x| x, |s, t| greater(s, t);
}
