use ndarray::{Array1, Array2, ArrayView1, ArrayView2, CowArray, Ix2};

use crate::{
    Design, DesignRules, Fit, ModelFile, Persist, Predict, PredictProba, Result, Score, Transform,
};

/// Transformers and a last estimator, fitted as one.
///
/// Each stage is fitted on what the stages before it made of the data, and checks it by its
/// own rules. The fitted pipeline can what its last stage can: predict, transform, score,
/// save.
///
/// ```
/// use detml_core::prelude::*;
/// use detml_core::Pipeline;
/// # use detml_core::{Design, DesignRules, Result};
/// # use ndarray::{Array1, Array2, ArrayView2, array};
/// # struct Shift;
/// # struct Shifted(f32);
/// # impl Fit for Shift {
/// #     type Fitted = Shifted;
/// #     fn rules(&self) -> DesignRules { DesignRules::unsupervised() }
/// #     fn fit_design(&self, design: &Design<'_>) -> Result<Shifted> {
/// #         Ok(Shifted(design.x()[[0, 0]]))
/// #     }
/// # }
/// # impl Transform for Shifted {
/// #     fn transform(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
/// #         Ok(x.mapv(|v| v - self.0))
/// #     }
/// # }
/// # let (first_scaler, second_scaler) = (Shift, Shift);
///
/// let x = array![[1.0f32], [3.0]];
/// let pipeline = Pipeline::new().then(first_scaler).then(second_scaler);
/// let fitted = pipeline.fit(&x)?;
/// let scaled = fitted.transform(x.view())?;
/// # assert_eq!(scaled, array![[0.0], [2.0]]);
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[must_use]
pub struct Pipeline<S> {
    stages: S,
}

/// No stage yet, or none fitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start;

/// Stages and one more after them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chain<A, B> {
    before: A,
    last: B,
}

impl Pipeline<Start> {
    /// A pipeline without a stage.
    pub const fn new() -> Self {
        Self { stages: Start }
    }
}

impl<S> Pipeline<S> {
    /// Adds a stage.
    pub fn then<T>(self, stage: T) -> Pipeline<Chain<S, T>> {
        Pipeline {
            stages: Chain {
                before: self.stages,
                last: stage,
            },
        }
    }
}

/// Stages that transform.
pub trait Stages: sealed::Sealed {
    /// What they are once fitted.
    type Fitted: FittedStages;

    #[doc(hidden)]
    fn fit_through<'a>(
        &self,
        design: &'a Design<'_>,
    ) -> Result<(Self::Fitted, CowArray<'a, f32, Ix2>)>;
}

/// Fitted stages that transform.
pub trait FittedStages: sealed::Sealed {
    #[doc(hidden)]
    fn apply<'a>(&self, x: ArrayView2<'a, f32>) -> Result<CowArray<'a, f32, Ix2>>;
}

/// Fitted stages that can be saved.
pub trait PersistStages: Sized {
    #[doc(hidden)]
    const COUNT: usize;
    #[doc(hidden)]
    fn write(&self, file: ModelFile) -> ModelFile;
    #[doc(hidden)]
    fn read(file: &ModelFile) -> Result<Self>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Start {}
    impl<A, B> Sealed for super::Chain<A, B> {}
}

impl Stages for Start {
    type Fitted = Start;

    fn fit_through<'a>(&self, design: &'a Design<'_>) -> Result<(Start, CowArray<'a, f32, Ix2>)> {
        Ok((Start, CowArray::from(design.x())))
    }
}

impl FittedStages for Start {
    fn apply<'a>(&self, x: ArrayView2<'a, f32>) -> Result<CowArray<'a, f32, Ix2>> {
        Ok(CowArray::from(x))
    }
}

impl PersistStages for Start {
    const COUNT: usize = 0;

    fn write(&self, file: ModelFile) -> ModelFile {
        file
    }

    fn read(_: &ModelFile) -> Result<Self> {
        Ok(Start)
    }
}

type FittedChain<A, B> = Chain<<A as Stages>::Fitted, <B as Fit>::Fitted>;

fn fit_chain<'a, A: Stages, B: Fit>(
    chain: &Chain<A, B>,
    design: &'a Design<'_>,
) -> Result<(FittedChain<A, B>, CowArray<'a, f32, Ix2>)> {
    let (before, x) = chain.before.fit_through(design)?;
    let inner = design.with_features(x.view().into())?;
    inner.check(&chain.last.rules())?;
    let last = chain.last.fit_design(&inner)?;
    drop(inner);
    Ok((Chain { before, last }, x))
}

impl<A: Stages, B: Fit<Fitted: Transform>> Stages for Chain<A, B> {
    type Fitted = Chain<A::Fitted, B::Fitted>;

    fn fit_through<'a>(
        &self,
        design: &'a Design<'_>,
    ) -> Result<(Self::Fitted, CowArray<'a, f32, Ix2>)> {
        let (fitted, x) = fit_chain(self, design)?;
        let x = fitted.last.transform(x.view())?;
        Ok((fitted, CowArray::from(x)))
    }
}

impl<A: FittedStages, B: Transform> FittedStages for Chain<A, B> {
    fn apply<'a>(&self, x: ArrayView2<'a, f32>) -> Result<CowArray<'a, f32, Ix2>> {
        let x = self.before.apply(x)?;
        Ok(CowArray::from(self.last.transform(x.view())?))
    }
}

impl<A: PersistStages, B: Persist> PersistStages for Chain<A, B> {
    const COUNT: usize = A::COUNT + 1;

    fn write(&self, file: ModelFile) -> ModelFile {
        let part = self.last.to_model_file();
        self.before
            .write(file)
            .with_part(&A::COUNT.to_string(), &part)
    }

    fn read(file: &ModelFile) -> Result<Self> {
        Ok(Self {
            before: A::read(file)?,
            last: B::from_model_file(&file.part(&A::COUNT.to_string())?)?,
        })
    }
}

impl<A: Stages, B: Fit> Fit for Pipeline<Chain<A, B>> {
    type Fitted = FittedPipeline<Chain<A::Fitted, B::Fitted>>;

    /// The stages check by their own rules, so this refuses nothing.
    fn rules(&self) -> DesignRules {
        DesignRules::unsupervised().allow_nan().allow_infinite()
    }

    fn fit_design(&self, design: &Design<'_>) -> Result<Self::Fitted> {
        let (stages, _) = fit_chain(&self.stages, design)?;
        Ok(FittedPipeline {
            stages,
            n_features: design.n_features(),
        })
    }
}

/// A fitted [`Pipeline`].
#[derive(Clone, Debug, PartialEq)]
pub struct FittedPipeline<S> {
    stages: S,
    n_features: usize,
}

impl<A, B> FittedPipeline<Chain<A, B>> {
    /// The last stage.
    pub fn last(&self) -> &B {
        &self.stages.last
    }

    /// Number of feature columns of the fit.
    pub fn n_features(&self) -> usize {
        self.n_features
    }
}

impl<A: FittedStages, B> FittedPipeline<Chain<A, B>> {
    fn before<'a>(&self, x: ArrayView2<'a, f32>) -> Result<CowArray<'a, f32, Ix2>> {
        DesignRules::unsupervised()
            .allow_nan()
            .allow_infinite()
            .check_features(x.view(), self.n_features)?;
        self.stages.before.apply(x)
    }
}

impl<A: FittedStages, B: Predict> Predict for FittedPipeline<Chain<A, B>> {
    fn n_features(&self) -> usize {
        self.n_features
    }

    fn predict(&self, x: ArrayView2<'_, f32>) -> Result<Array1<f32>> {
        self.stages.last.predict(self.before(x)?.view())
    }
}

impl<A: FittedStages, B: PredictProba> PredictProba for FittedPipeline<Chain<A, B>> {
    fn classes(&self) -> &[f32] {
        self.stages.last.classes()
    }

    fn predict_proba(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        self.stages.last.predict_proba(self.before(x)?.view())
    }
}

impl<A: FittedStages, B: Transform> Transform for FittedPipeline<Chain<A, B>> {
    fn transform(&self, x: ArrayView2<'_, f32>) -> Result<Array2<f32>> {
        self.stages.last.transform(self.before(x)?.view())
    }
}

impl<A: FittedStages, B: Score> Score for FittedPipeline<Chain<A, B>> {
    fn score(
        &self,
        x: ArrayView2<'_, f32>,
        y: ArrayView1<'_, f32>,
        weights: Option<ArrayView1<'_, f32>>,
    ) -> Result<f64> {
        self.stages.last.score(self.before(x)?.view(), y, weights)
    }
}

impl<A: PersistStages, B: Persist> Persist for FittedPipeline<Chain<A, B>> {
    fn to_model_file(&self) -> ModelFile {
        let file = ModelFile::new("Pipeline")
            .with_param("stages", A::COUNT + 1)
            .with_param("n_features", self.n_features);
        self.stages.write(file)
    }

    fn from_model_file(file: &ModelFile) -> Result<Self> {
        file.expect_estimator("Pipeline")?;
        let stages: usize = file.param("stages")?;
        if stages != A::COUNT + 1 {
            return Err(file.refuse(format!(
                "expected a pipeline of {} stages, got {stages}",
                A::COUNT + 1
            )));
        }
        Ok(Self {
            stages: Chain::read(file)?,
            n_features: file.param("n_features")?,
        })
    }
}
