//! Which schedule a product takes, by its shape and the device's class. No choice shows in the
//! bits.

use super::{CUBES, Fold, Plan, Read, SPLIT};
use crate::device::Device;
use crate::ops::gemm::Problem;
use detml_core::Backend;

/// The shape of a cube's tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    pub(super) rows: u32,
    pub(super) columns: u32,
    /// Terms staged at a time: 8, 16 or 32.
    pub(super) depth: u32,
    /// Rows and columns of one unit.
    pub(super) unit_rows: u32,
    pub(super) unit_columns: u32,
}

impl Tile {
    /// For large products where there are many registers and much shared memory.
    pub(crate) const TALL: Self = Self::new(128, 128, 8, 16, 8);
    /// The same where the lanes of both operands lie side by side.
    pub(crate) const TALL_DEEP: Self = Self::new(128, 128, 16, 16, 8);
    /// For large products elsewhere.
    pub(crate) const LARGE: Self = Self::new(128, 128, 16, 8, 8);
    pub(crate) const MEDIUM: Self = Self::new(64, 64, 8, 8, 8);
    pub(crate) const SMALL: Self = Self::new(32, 32, 16, 4, 4);
    /// For few rows.
    pub(crate) const WIDE: Self = Self::new(32, 128, 8, 8, 4);
    pub(crate) const ROWS_8: Self = Self::new(8, 128, 8, 8, 4);
    /// The same where there is more shared memory: more loads are on their way.
    pub(crate) const ROWS_DEEP: Self = Self::new(8, 128, 32, 8, 4);
    pub(crate) const ALL: [Self; 8] = [
        Self::TALL,
        Self::TALL_DEEP,
        Self::LARGE,
        Self::MEDIUM,
        Self::SMALL,
        Self::WIDE,
        Self::ROWS_8,
        Self::ROWS_DEEP,
    ];

    const fn new(rows: u32, columns: u32, depth: u32, unit_rows: u32, unit_columns: u32) -> Self {
        Self {
            rows,
            columns,
            depth,
            unit_rows,
            unit_columns,
        }
    }

    /// A tile named by its five numbers, joined by `x`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let numbers: Option<Vec<u32>> = name.split('x').map(|x| x.parse().ok()).collect();
        match numbers?[..] {
            [rows, columns, depth, unit_rows, unit_columns] => {
                Some(Self::new(rows, columns, depth, unit_rows, unit_columns))
            }
            _ => None,
        }
    }

    /// Rows and columns.
    #[cfg(test)]
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.rows as usize, self.columns as usize)
    }

    pub(super) fn units_down(&self) -> u32 {
        self.rows / self.unit_rows
    }

    pub(super) fn units_across(&self) -> u32 {
        self.columns / self.unit_columns
    }

    pub(super) fn units(&self) -> u32 {
        self.units_down() * self.units_across()
    }

    /// What it keeps of a device busy, in units: one that has many sums does the work of several.
    fn busy(&self) -> usize {
        self.units().max(self.rows * self.columns / 64) as usize
    }

    /// Tiles of an output.
    pub(super) fn tiles(&self, m: usize, n: usize) -> usize {
        m.div_ceil(self.rows as usize) * n.div_ceil(self.columns as usize)
    }

    /// Bytes of shared memory.
    fn shared(&self, fold: Fold) -> u32 {
        let stages = 8 * (self.rows + self.columns) * self.depth;
        match fold {
            Fold::Shared => stages + 4 * self.rows * self.columns,
            Fold::None | Fold::Registers => stages,
        }
    }

    /// Whether a device can run it.
    pub(crate) fn fits(&self, fold: Fold, device: &Device) -> bool {
        self.shared(fold) <= shared(device)
    }

    /// Cubes that are to share a multiprocessor; 0 leaves it to the compiler.
    pub(super) fn resident(&self, fold: Fold) -> u32 {
        // One cube multiplies while another waits. Totals in registers leave no room.
        match fold {
            Fold::None | Fold::Shared if matches!(*self, Self::LARGE | Self::TALL) => 2,
            _ => 0,
        }
    }
}

/// Bytes of shared memory that a cube may take.
pub(super) fn shared(device: &Device) -> u32 {
    match device.backend() {
        Backend::Cuda(_) => 96 << 10,
        Backend::Hip(_) => 64 << 10,
        _ => 16 << 10,
    }
}

/// A schedule.
pub(super) struct Choice {
    pub(super) tile: Tile,
    pub(super) fold: Fold,
    pub(super) split: bool,
}

/// Units that keep a large device busy.
const BUSY: usize = 132 * 384;

pub(super) fn choose(device: &Device, p: &Problem, panels: usize, plan: Plan) -> Choice {
    let tile = plan.tile.unwrap_or_else(|| tile(device, p, panels));
    let fold = if panels == 1 {
        Fold::None
    } else {
        plan.fold.unwrap_or(if tile.fits(Fold::Shared, device) {
            Fold::Shared
        } else {
            Fold::Registers
        })
    };
    let busy = tile.tiles(p.m, p.n) * p.batch * tile.busy() >= BUSY;
    let split = panels > 1
        && 2 * p.batch <= CUBES
        && 2 * p.batch * p.m * p.n <= SPLIT
        && plan.split.unwrap_or(!busy);
    Choice { tile, fold, split }
}

/// The tile that takes least time: what it computes, padding included, weighed by its speed, as long
/// as its cubes keep a device busy.
fn tile(device: &Device, p: &Problem, panels: usize) -> Tile {
    if p.m <= 8 {
        return if Tile::ROWS_DEEP.fits(Fold::None, device) {
            Tile::ROWS_DEEP
        } else {
            Tile::ROWS_8
        };
    }
    if p.m <= 32 && p.n > 32 {
        return Tile::WIDE;
    }
    let cost = |&(tile, weight): &(Tile, usize)| {
        let cubes = tile.tiles(p.m, p.n) * p.batch;
        let units = (cubes * panels * tile.busy()).min(BUSY);
        let computed = cubes * (tile.rows * tile.columns) as usize * weight;
        computed.saturating_mul(BUSY) / units
    };
    // It has no registers for totals.
    let large = if Tile::TALL.fits(Fold::Shared, device) {
        Tile::TALL
    } else {
        Tile::LARGE
    };
    [(large, 10), (Tile::MEDIUM, 12), (Tile::SMALL, 20)]
        .into_iter()
        .filter(|(tile, _)| tile.fits(Fold::None, device))
        .min_by_key(cost)
        .map_or(Tile::SMALL, |(tile, _)| tile)
}

/// Whether few rows have a kernel of their own: where columns and panels keep a device busy.
pub(super) fn is_thin(p: &Problem, panels: usize, plan: Plan) -> bool {
    let busy = p.m <= 8 && p.n >= 512 && panels >= 4;
    p.batch <= CUBES
        && plan
            .thin
            .unwrap_or(busy && plan.tile.is_none() && plan.split.is_none())
}

/// Whether an operand, each element of which meets `uses` others, is copied so that its lanes lie
/// side by side: where that costs less than to read it as it lies time and again.
pub(super) fn packs(tile: Tile, p: &Problem, read: Read, uses: usize, plan: Plan) -> bool {
    let pays = match read {
        Read::Lanes | Read::Table => return false,
        Read::Terms => uses >= 2048,
        Read::Words => uses >= 512,
    };
    p.batch == 1 && plan.pack.unwrap_or(pays && tile == Tile::TALL)
}
