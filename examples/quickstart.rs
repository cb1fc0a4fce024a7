//! Which flights will arrive more than 15 minutes late?
//!
//! Trains on 80,000 flights of 2013 and predicts 20,000 others. The two hashes are the same on
//! every CPU, for any number of threads (`RAYON_NUM_THREADS`) and instruction set (`DETML_SIMD`),
//! and on every GPU (`DETML_BACKEND`).

use detml::metrics;
use detml::prelude::*;
use std::time::Instant;

fn main() -> detml::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/data/flights.csv.gz");
    let flights = Dataset::from_csv(path)?.target("late")?;
    let (train, test) = flights.split(0.8, Seed(7))?;

    let start = Instant::now();
    let model = GradientBoosting::classifier()
        .n_trees(200)
        .max_depth(6)
        .learning_rate(0.1)
        .fit(&train)?;
    let seconds = start.elapsed().as_secs_f64();

    let p = model.predict_proba(test.features())?;
    let auc = metrics::roc_auc(test.labels()?, p.column(1))?;
    println!(
        "rows         {} to train, {} to test",
        train.n_rows(),
        test.n_rows()
    );
    println!("fit          {seconds:.2} s");
    println!("AUC          {auc:.4}");
    println!("\n{}\n", model.report());
    println!("model        {}", model.bit_hash());
    println!("predictions  {}", p.bit_hash());
    Ok(())
}
