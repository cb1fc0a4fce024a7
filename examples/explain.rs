//! What makes flights late? Explains a boosted model of the flights from New York in 2013.
//!
//! ```text
//! cargo run --release --example explain
//! ```

use detml::prelude::*;
use detml::trees::Importance;
use detml::trees::explain::{ExplainTrees, PartialDependence, PermutationImportance};
use detml::{Result, metrics};
use ndarray::{Axis, s};

fn main() -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/data/flights.csv.gz");
    let flights = Dataset::from_csv(path)?.target("late")?;
    let (train, test) = flights.split(0.9, Seed(7))?;
    let model = GradientBoosting::classifier().n_trees(50).fit(&train)?;
    let names = flights.feature_names();
    let x = test.features();
    let x = x.slice(s![..2000.min(x.nrows()), ..]);
    let y = test.labels()?;
    let y = y.slice(s![..x.nrows()]);

    // Log-odds that each feature moves a flight by, on average.
    let values = model.shap_values(x)?;
    let of_features = values.slice(s![.., 0, ..x.ncols()]);
    let shap = of_features.mapv(f32::abs).mean_axis(Axis(0));
    let shap = shap.unwrap_or_default().mapv(f64::from);
    let gain = model.feature_importance_shares(Importance::Gain);
    let permutation = PermutationImportance::new().n_repeats(2).seed(Seed(1));
    let by_auc = permutation.by(x, y, |x, y| {
        metrics::roc_auc(y, model.predict_proba(x)?.column(1))
    })?;
    let lost = by_auc.mean();
    println!("area under the curve {:.4}", by_auc.baseline);
    println!("feature       mean |shap|   share of gain   area lost if shuffled");
    let mut order: Vec<usize> = (0..x.ncols()).collect();
    order.sort_by(|&a, &b| shap[b].total_cmp(&shap[a]));
    for &i in order.iter().take(8) {
        let (name, shap, gain, lost) = (&names[i], shap[i], gain[i], lost[i]);
        println!("{name:<12} {shap:>12.4} {gain:>15.4} {lost:>23.4}");
    }

    // One flight: its log-odds, feature by feature.
    let flight = values.slice(s![0, 0, ..]);
    let expected = flight[x.ncols()];
    println!("\nthe first flight: {:.3} of {expected:.3}", flight.sum());
    let mut order: Vec<usize> = (0..x.ncols()).collect();
    order.sort_by(|&a, &b| flight[b].abs().total_cmp(&flight[a].abs()));
    for &i in order.iter().take(5) {
        println!("{:<12} = {:>8} {:>+8.3}", names[i], x[[0, i]], flight[i]);
    }

    // The pair that acts together the most.
    let pairs = model.shap_interaction_values(x.slice(s![..300, ..]))?;
    let mut best = (0.0, 0, 1);
    for i in 0..x.ncols() {
        for j in i + 1..x.ncols() {
            let pair = pairs.slice(s![.., 0, i, j]);
            let mean = pair.iter().fold(0.0, |sum, v| sum + v.abs()) / pair.len() as f32;
            if mean > best.0 {
                best = (mean, i, j);
            }
        }
    }
    let (mean, i, j) = best;
    println!("\n{} with {}: {:.4}", names[i], names[j], 2.0 * mean);

    // Against other flights rather than the training's covers.
    let against = model.interventional_shap(x.slice(s![..1, ..]), x.slice(s![..200, ..]))?;
    println!("expected of 200 flights: {:.3}", against[[0, 0, x.ncols()]]);

    // How the probability moves with the hour.
    if let Some(hour) = names.iter().position(|name| name == "sched_dep") {
        let found = PartialDependence::new()
            .grid_resolution(5)
            .of(x, hour, |x| {
                Ok(model.predict_proba(x)?.column(1).to_owned())
            })?;
        println!("\nminute of departure, probability of being late");
        for (minute, p) in found.grid.iter().zip(&found.average) {
            println!("{minute:>8.0} {p:.3}");
        }
    }
    println!("\nvalues {}", values.bit_hash());
    Ok(())
}
