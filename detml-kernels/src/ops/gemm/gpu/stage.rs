//! From memory to shared memory: operands as the product's loop reads them.
//!
//! A unit takes blocks of four lanes (rows of `a`, columns of `b`) by four terms through its
//! registers. In shared memory a term's lanes lie side by side, four to a vector, whichever lie
//! side by side in memory: a block is transposed on its way, which costs no instruction. Eight
//! units in a row write neighbouring vectors, and four by eight of them read whole sectors.
//!
//! Lanes beyond the matrix read its last one and are not stored. Terms beyond the last are -0 in
//! `a` and +0 in `b`: their product is -0, and adding -0 leaves every sum as it is, zeros of
//! either sign included.

use super::Four;
use crate::prim;
use cubecl::prelude::*;

/// How an operand is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Read {
    /// Vectors of four terms of a lane.
    Terms,
    /// Vectors of four lanes of a term.
    Lanes,
    /// Single elements.
    Words,
    /// Single elements, whose places are sums of a lane's and a term's.
    Table,
}

impl Read {
    pub(super) fn wide(self) -> bool {
        matches!(self, Self::Terms | Self::Lanes)
    }
}

#[derive(CubeType)]
pub(super) struct Operand {
    pub(super) wide: Array<Four>,
    pub(super) words: Array<f32>,
    /// The places of lanes and terms where there are tables.
    pub(super) lanes: Array<u32>,
    pub(super) terms: Array<u32>,
    pub(super) offset: u32,
    pub(super) lane: u32,
    pub(super) k: u32,
    pub(super) batch: u32,
    /// Lanes of the matrix.
    pub(super) count: u32,
    /// What stands beyond the last term; no compiler knows it.
    pub(super) pad: f32,
}

/// One side of a tile: its lanes, and how they are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Side {
    pub(super) read: Read,
    pub(super) lanes: u32,
    pub(super) depth: u32,
    /// Lanes of a unit, and units side by side.
    pub(super) each: u32,
    pub(super) units: u32,
}

impl Side {
    /// Vectors of one stage.
    pub(super) fn vectors(&self) -> u32 {
        self.lanes * self.depth / 4
    }

    /// Blocks of one stage.
    pub(super) fn blocks(&self) -> u32 {
        self.vectors() / 4
    }

    /// Blocks of lanes.
    fn across(&self) -> u32 {
        self.lanes / 4
    }

    /// Blocks of lanes that units in a row take.
    fn row(&self) -> u32 {
        self.across().min(8)
    }
}

/// Where a block lies in a stage: its lanes and its terms, in blocks.
#[cube]
fn corner(block: u32, #[comptime] side: Side) -> (u32, u32) {
    let row = comptime!(side.row());
    let down = comptime!(side.depth / 4);
    (block / (row * down) * row + block % row, block / row % down)
}

/// The `slot`-th block of a unit: where its lanes begin in memory. The tile starts at `lane`.
#[cube]
pub(super) fn locate(
    x: &Operand,
    base: u32,
    lane: u32,
    block: u32,
    into: &mut Array<u32>,
    #[comptime] slot: u32,
    #[comptime] side: Side,
) {
    let (across, _) = corner(block, side);
    let lane = lane + across * 4u32;
    if comptime!(side.read == Read::Lanes) {
        let lane = prim::select_u32(lane < x.count, lane, x.count - 4u32);
        into[comptime!(4 * slot as usize)] = (base + lane) / 4u32;
    } else {
        #[unroll]
        for i in 0..4u32 {
            let lane = prim::select_u32(lane + i < x.count, lane + i, x.count - 1u32);
            let at = comptime!((4 * slot + i) as usize);
            if comptime!(side.read == Read::Terms) {
                into[at] = (base + lane * x.lane) / 4u32;
            } else if comptime!(side.read == Read::Table) {
                into[at] = base + x.lanes[lane as usize];
            } else {
                into[at] = base + lane * x.lane;
            }
        }
    }
}

/// Loads a block of the stage that begins at term `k`. Terms from `end` on are padding; a `whole`
/// stage has none.
#[cube]
pub(super) fn load(
    x: &Operand,
    places: &Array<u32>,
    k: u32,
    end: u32,
    block: u32,
    into: &mut Array<Four>,
    #[comptime] slot: u32,
    #[comptime] side: Side,
    #[comptime] whole: bool,
) {
    let (_, down) = corner(block, side);
    let k = k + down * 4u32;
    if comptime!(side.read == Read::Lanes) {
        let pitch = x.k / 4u32;
        let place = places[comptime!(4 * slot as usize)] + k * pitch;
        #[unroll]
        for i in 0..4u32 {
            let at = comptime!((4 * slot + i) as usize);
            let place = (place + i * pitch) as usize;
            if comptime!(whole) {
                into[at] = x.wide[place];
            } else {
                let mut r = Four::new(x.pad);
                if k + i < end {
                    r = x.wide[place];
                }
                into[at] = r;
            }
        }
    } else if comptime!(side.read == Read::Terms) {
        let ahead = k / 4u32;
        #[unroll]
        for i in 0..4u32 {
            let at = comptime!((4 * slot + i) as usize);
            let place = (places[at] + ahead) as usize;
            if comptime!(whole) {
                into[at] = x.wide[place];
            } else {
                let mut r = Four::new(x.pad);
                if k < end {
                    r = x.wide[place];
                }
                into[at] = r;
            }
        }
    } else {
        let mut terms = Array::<u32>::new(4usize);
        #[unroll]
        for l in 0..4u32 {
            if comptime!(side.read == Read::Words) {
                terms[l as usize] = (k + l) * x.k;
            } else if comptime!(whole) {
                terms[l as usize] = x.terms[(k + l) as usize];
            } else {
                let mut term = 0u32;
                if k + l < end {
                    term = x.terms[(k + l) as usize];
                }
                terms[l as usize] = term;
            }
        }
        #[unroll]
        for i in 0..4u32 {
            let at = comptime!((4 * slot + i) as usize);
            let mut words = Four::empty();
            #[unroll]
            for l in 0..4u32 {
                let place = (places[at] + terms[l as usize]) as usize;
                // Each element of a vector is assigned once: CubeCL 0.10.0 merges assignments.
                if comptime!(whole) {
                    words[l as usize] = x.words[place];
                } else {
                    let mut word = x.pad;
                    if k + l < end {
                        word = x.words[place];
                    }
                    words[l as usize] = word;
                }
            }
            into[at] = words;
        }
    }
}

/// Puts what `load` loaded into the stage at `at` in shared memory. For `within` see [`term`].
#[cube]
pub(super) fn stage(
    from: &Array<Four>,
    shared: &mut SharedMemory<Four>,
    at: u32,
    block: u32,
    #[comptime] slot: u32,
    #[comptime] side: Side,
    #[comptime] within: u32,
) {
    let (across, down) = corner(block, side);
    let place = (at + down * comptime!(4 * side.across()) + across) % within;
    #[unroll]
    for i in 0..4u32 {
        let place = (place + i * comptime!(side.across())) as usize;
        if comptime!(side.read == Read::Lanes) {
            shared[place] = from[comptime!((4 * slot + i) as usize)];
        } else {
            let mut v = Four::empty();
            #[unroll]
            for l in 0..4u32 {
                v[l as usize] = from[comptime!((4 * slot + l) as usize)][i as usize];
            }
            shared[place] = v;
        }
    }
}

/// The lane within the tile of a unit's `i`-th.
#[cube]
pub(super) fn lane_of(i: u32, unit: u32, #[comptime] side: Side) -> u32 {
    i / 4u32 * comptime!(4 * side.units) + unit * 4u32 + i % 4u32
}

/// One term of each of a unit's lanes from the stage at `at`. Every place is below `within`, a
/// power of two: that sums don't wrap lets compilers put constants into the addresses of loads.
#[cube]
pub(super) fn term(
    shared: &SharedMemory<Four>,
    at: u32,
    k: u32,
    unit: u32,
    out: &mut Array<f32>,
    #[comptime] side: Side,
    #[comptime] within: u32,
    #[comptime] unroll: bool,
) {
    let first = (at + unit) % within;
    #[unroll(unroll)]
    for h in 0..comptime!(side.each / 4) {
        let place = k * comptime!(side.across()) + h * comptime!(side.units);
        let v = shared[(first + place) as usize];
        #[unroll]
        for i in 0..4u32 {
            out[(h * 4u32 + i) as usize] = v[i as usize];
        }
    }
}
