//! Kernels as values: a name, a variant and a definition that needs no device.

use super::text::{self, Language};
use crate::ieee::{FloatProfile, IeeeExpand};
use cubecl::ir::{AddressType, Branch, DeviceProperties};
use cubecl::prelude::*;
use cubecl_core::KernelSettings;
use std::cell::Cell;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A kernel that can be launched on any device and compiled to any target's text.
///
/// The definition is run once for each device and variant; `variant` must name everything that
/// changes the generated code (compile-time arguments, tile shapes, the profile).
#[derive(Clone)]
pub struct Kernel {
    inner: Arc<Inner>,
}

struct Inner {
    name: &'static str,
    variant: Box<str>,
    key: Key,
    units: CubeDim,
    profile: FloatProfile,
    resident: u32,
    define: Box<dyn Fn(&mut Definition) + Send + Sync>,
}

impl Kernel {
    /// A kernel of `units` threads a cube whose code is written by `define`.
    ///
    /// `variant` is everything besides the profile that changes the code.
    pub(crate) fn new(
        name: &'static str,
        profile: FloatProfile,
        variant: impl Debug,
        units: CubeDim,
        define: impl Fn(&mut Definition) + Send + Sync + 'static,
    ) -> Self {
        thread_local! {
            // Kernels are made for each launch.
            static TEXT: Cell<String> = Cell::default();
        }
        let mut text = TEXT.take();
        text.clear();
        // Writing to a string fails only if `variant` does.
        let _ = write!(text, "{variant:?}");
        let variant = Box::from(&*text);
        let key = Key::of(&(name, &text, profile, units));
        TEXT.set(text);
        Self {
            inner: Arc::new(Inner {
                name,
                variant,
                key,
                units,
                profile,
                resident: 0,
                define: Box::new(define),
            }),
        }
    }

    /// The kernel with registers few enough for `cubes` cubes at a time on one multiprocessor,
    /// where the driver's compiler can be told. To be a function of what the variant names.
    pub(crate) fn resident(mut self, cubes: u32) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.resident = cubes;
        }
        self
    }

    /// The kernel with its representation amended once it is written; `what` tells it from the
    /// kernel as it is.
    pub(crate) fn amended(
        &self,
        what: impl Debug,
        amend: impl Fn(&mut Scope) + Send + Sync + 'static,
    ) -> Self {
        let inner = Arc::clone(&self.inner);
        let variant = format_args!("{}, {what:?}", inner.variant).to_string();
        Self::new(inner.name, inner.profile, variant, inner.units, move |d| {
            (inner.define)(d);
            amend(d.scope());
        })
        .resident(self.inner.resident)
    }

    /// The entry point's name.
    pub fn name(&self) -> &'static str {
        self.inner.name
    }

    /// Everything that tells this kernel from others of its name.
    pub fn variant(&self) -> &str {
        &self.inner.variant
    }

    /// The profile that the kernel's arithmetic is written for.
    pub fn profile(&self) -> FloatProfile {
        self.inner.profile
    }

    /// Threads of one cube.
    pub fn units(&self) -> CubeDim {
        self.inner.units
    }

    /// What the driver's compiler gets, from what CubeCL's printed in `language`.
    pub(crate) fn text(&self, language: Language, source: &str) -> String {
        let source = text::for_driver(language, source);
        if language != Language::Cuda || self.inner.resident == 0 {
            return source;
        }
        let units = self.inner.units.num_elems();
        source.replacen(
            &format!("__launch_bounds__({units})"),
            &format!("__launch_bounds__({units}, {})", self.inner.resident),
            1,
        )
    }

    /// The kernel's intermediate representation.
    ///
    /// `properties` are those of the device it will run on; without them (text for a target that
    /// isn't present) the definition must not ask for any.
    pub fn definition(&self, properties: Option<&DeviceProperties>) -> KernelDefinition {
        let mut definition = self.begin(properties);
        (self.inner.define)(&mut definition);
        self.finish(definition)
    }

    /// As [`definition`](Self::definition), with every access checked: one more output, after the
    /// others, takes the faults. And the accesses, as CubeCL prints them.
    #[cfg(feature = "gpu")]
    pub(super) fn checked_definition(
        &self,
        properties: Option<&DeviceProperties>,
    ) -> (KernelDefinition, Vec<String>) {
        let mut definition = self.begin(properties);
        let mut checks = super::checked::Checks::begin(definition.scope());
        (self.inner.define)(&mut definition);
        let faults = definition.output::<u32>();
        checks.insert(definition.scope(), &faults);
        (self.finish(definition), checks.accesses)
    }

    fn begin(&self, properties: Option<&DeviceProperties>) -> Definition {
        let mut builder = KernelBuilder::default();
        if let Some(properties) = properties {
            builder.device_properties(properties);
        }
        AddressType::U32.register(&mut builder.scope);
        let nz = builder.scalar(f32::cube_type());
        let zero = builder.scalar(u32::cube_type());
        Definition {
            nz: nz.into(),
            zero: zero.into(),
            profile: self.inner.profile,
            builder,
        }
    }

    fn finish(&self, definition: Definition) -> KernelDefinition {
        definition.builder.build(
            KernelSettings::default()
                .cube_dim(self.inner.units)
                .address_type(AddressType::U32)
                .kernel_name(self.inner.name),
        )
    }

    #[cfg(feature = "gpu")]
    pub(super) fn key(&self) -> Key {
        self.inner.key
    }
}

impl Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Inner {
            name,
            variant,
            profile,
            ..
        } = &*self.inner;
        write!(f, "{name}[{variant}|{profile:?}]")
    }
}

/// What tells kernels apart: 128 bits of a hash of name, variant, profile and units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key([u64; 2]);

impl Key {
    fn of(value: &impl Hash) -> Self {
        Self([0u8, 1].map(|half| {
            let mut hasher = DefaultHasher::new();
            half.hash(&mut hasher);
            value.hash(&mut hasher);
            hasher.finish()
        }))
    }
}

/// Declares a kernel's arguments, in the order in which a launch passes them.
pub struct Definition {
    builder: KernelBuilder,
    nz: NativeExpand<f32>,
    zero: NativeExpand<u32>,
    profile: FloatProfile,
}

impl Definition {
    /// The arithmetic. Its run-time -0 and 0 are hidden first scalars of every kernel (`N2`).
    pub(crate) fn ieee(&self) -> IeeeExpand {
        IeeeExpand::new(self.nz.clone(), self.zero.clone(), self.profile)
    }

    /// A buffer that is only read.
    pub(crate) fn input<T: CubePrimitive>(&mut self) -> NativeExpand<Array<T>> {
        let ty = T::as_type(&self.builder.scope);
        self.builder.input_array(ty).into()
    }

    /// A buffer that is written, and may be read.
    pub(crate) fn output<T: CubePrimitive>(&mut self) -> NativeExpand<Array<T>> {
        let ty = T::as_type(&self.builder.scope);
        self.builder.output_array(ty).into()
    }

    /// A run-time scalar.
    pub(crate) fn scalar<T: CubeElement + Scalar>(&mut self) -> NativeExpand<T> {
        self.builder.scalar(T::cube_type()).into()
    }

    /// The scope that the kernel's `expand` writes into.
    pub(crate) fn scope(&mut self) -> &mut Scope {
        &mut self.builder.scope
    }
}

/// The scopes within a branch.
pub(crate) fn scopes(branch: &mut Branch) -> Vec<&mut Scope> {
    match branch {
        Branch::If(op) => vec![&mut op.scope],
        Branch::IfElse(op) => vec![&mut op.scope_if, &mut op.scope_else],
        Branch::Switch(op) => std::iter::once(&mut op.scope_default)
            .chain(op.cases.iter_mut().map(|(_, scope)| scope))
            .collect(),
        Branch::RangeLoop(op) => vec![&mut op.scope],
        Branch::Loop(op) => vec![&mut op.scope],
        Branch::Return | Branch::Break | Branch::Unreachable => Vec::new(),
    }
}
