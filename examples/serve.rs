//! A prediction service whose answers can be checked later, on any machine.
//!
//! ```text
//! cargo run --release --example serve -- model.json 127.0.0.1:8080
//! curl -s localhost:8080/predict -H 'content-type: application/json' -d '{"rows": [[1.5, null]]}'
//! ```
//!
//! The model is one of detml (`.safetensors`), XGBoost (`.json`, `.ubj`), LightGBM (`.txt`),
//! CatBoost or scikit-learn (`.json`). `POST /predict` takes rows of features, null for a missing
//! value, and gives predictions (probabilities of a classifier) with a receipt: the hashes of the
//! model and of the rows, the bits of the predictions and the backend. `POST /replay` takes the
//! rows and a receipt, predicts again and says what of the receipt holds. Since detml's bits are
//! the same on every backend, a receipt of a GPU can be replayed on a CPU (`DETML_BACKEND`).

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use detml::prelude::*;
use detml::trees::TreeEnsemble;
use detml::{Device, Error, ModelFile};
use ndarray::{Array2, ArrayView2};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;

enum Model {
    Boosted(GradientBoostingModel),
    Ensemble(TreeEnsemble),
}

impl Model {
    fn load(path: &Path) -> detml::Result<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str());
        if ending == Some("safetensors") {
            let file = ModelFile::load(path)?;
            return match file.estimator() {
                "TreeEnsemble" => TreeEnsemble::from_model_file(&file).map(Self::Ensemble),
                _ => GradientBoostingModel::from_model_file(&file).map(Self::Boosted),
            };
        }
        let bytes = std::fs::read(path).map_err(|error| Error::io(path, &error))?;
        match ending {
            Some("ubj") => TreeEnsemble::from_xgboost_ubjson(&bytes),
            Some("txt") => TreeEnsemble::from_lightgbm_text(&bytes),
            Some("json") => from_json(&bytes),
            _ => Err(Error::unsupported(
                format!("a model file named `{}`", path.display()),
                "the ending must be safetensors, json, ubj or txt",
            )),
        }
        .map(Self::Ensemble)
    }

    fn hash(&self) -> String {
        match self {
            Self::Boosted(model) => model.bit_hash().to_hex(),
            Self::Ensemble(model) => model.bit_hash().to_hex(),
        }
    }

    fn n_features(&self) -> usize {
        match self {
            Self::Boosted(model) => model.n_features(),
            Self::Ensemble(model) => model.n_features(),
        }
    }

    /// Probabilities of a classifier, else predictions.
    fn predict(&self, device: &Device, x: ArrayView2<'_, f32>) -> detml::Result<Array2<f32>> {
        let (predictions, _) = match self {
            Self::Ensemble(model) => model.predict_response_on(device, x)?,
            Self::Boosted(model) if model.classes().is_empty() => {
                model.predict_margin_on(device, x)?
            }
            Self::Boosted(model) => model.predict_proba_on(device, x)?,
        };
        Ok(predictions)
    }
}

/// Libraries that write JSON differ in their first keys.
fn from_json(bytes: &[u8]) -> detml::Result<TreeEnsemble> {
    #[derive(Deserialize)]
    struct Keys {
        learner: Option<serde::de::IgnoredAny>,
        model_info: Option<serde::de::IgnoredAny>,
    }
    let keys: Keys = serde_json::from_slice(bytes)
        .map_err(|error| Error::parse("model", error.line() as u64, "a JSON object", error))?;
    if keys.learner.is_some() {
        TreeEnsemble::from_xgboost_json(bytes)
    } else if keys.model_info.is_some() {
        TreeEnsemble::from_catboost_json(bytes)
    } else {
        TreeEnsemble::from_sklearn_json(bytes)
    }
}

struct Service {
    model: Model,
    hash: String,
    device: Device,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    rows: Vec<Vec<Option<f32>>>,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Receipt {
    model: String,
    input: String,
    /// Each prediction's `f32` as hexadecimal digits, row by row.
    output: Vec<String>,
    backend: String,
}

#[derive(Serialize)]
struct Answer {
    predictions: Vec<Vec<f32>>,
    receipt: Receipt,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    rows: Vec<Vec<Option<f32>>>,
    receipt: Receipt,
}

#[derive(Debug, Serialize, PartialEq)]
struct Verdict {
    /// Whether all of the receipt holds.
    holds: bool,
    model: bool,
    input: bool,
    output: bool,
    /// Where it was replayed.
    backend: String,
}

impl Service {
    fn new(model: Model, device: Device) -> Self {
        let hash = model.hash();
        Self {
            model,
            hash,
            device,
        }
    }

    fn table(&self, rows: &[Vec<Option<f32>>]) -> detml::Result<Array2<f32>> {
        let columns = self.model.n_features();
        if let Some(row) = rows.iter().find(|row| row.len() != columns) {
            return Err(Error::shape("a row", columns, row.len()));
        }
        Ok(Array2::from_shape_fn((rows.len(), columns), |(i, j)| {
            rows[i][j].unwrap_or(f32::NAN)
        }))
    }

    fn predict(&self, rows: &[Vec<Option<f32>>]) -> detml::Result<Answer> {
        let x = self.table(rows)?;
        let predictions = self.model.predict(&self.device, x.view())?;
        let receipt = Receipt {
            model: self.hash.clone(),
            input: x.bit_hash().to_hex(),
            output: predictions
                .iter()
                .map(|p| format!("{:08x}", p.to_bits()))
                .collect(),
            backend: self.device.backend().to_string(),
        };
        Ok(Answer {
            predictions: predictions
                .rows()
                .into_iter()
                .map(|row| row.to_vec())
                .collect(),
            receipt,
        })
    }

    fn replay(&self, claim: &Claim) -> detml::Result<Verdict> {
        let again = self.predict(&claim.rows)?.receipt;
        let model = again.model == claim.receipt.model;
        let input = again.input == claim.receipt.input;
        let output = again.output == claim.receipt.output;
        Ok(Verdict {
            holds: model && input && output,
            model,
            input,
            output,
            backend: again.backend,
        })
    }
}

type Reply<T> = Result<Json<T>, (StatusCode, String)>;

/// Runs a prediction off the threads that serve connections.
async fn reply<T: Send + 'static>(
    work: impl FnOnce() -> detml::Result<T> + Send + 'static,
) -> Reply<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(done)) => Ok(Json(done)),
        Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, error.to_string())),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

async fn predict(State(service): State<Arc<Service>>, Json(body): Json<Rows>) -> Reply<Answer> {
    reply(move || service.predict(&body.rows)).await
}

async fn replay(State(service): State<Arc<Service>>, Json(claim): Json<Claim>) -> Reply<Verdict> {
    reply(move || service.replay(&claim)).await
}

fn router(service: Service) -> Router {
    Router::new()
        .route("/", get(async || "POST /predict, POST /replay\n"))
        .route("/predict", post(predict))
        .route("/replay", post(replay))
        .with_state(Arc::new(service))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: serve MODEL [ADDRESS]")?;
    let address = arguments.next().unwrap_or("127.0.0.1:8080".into());
    let service = Service::new(Model::load(Path::new(&path))?, Device::current()?);
    println!(
        "model {} on {}, http://{address}",
        service.hash, service.device
    );
    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router(service)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(file: &str) -> Service {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/detml-trees/tests/data/interop"
        );
        let model = Model::load(&Path::new(folder).join(file)).unwrap();
        Service::new(model, Device::cpu())
    }

    #[test]
    fn a_receipt_holds_until_it_is_changed() {
        for file in [
            "xgb3-softmax.json",
            "xgb3-softprob.ubj",
            "lgb-binary.txt",
            "cat-rmse.json",
            "skl-hist.json",
        ] {
            let service = service(file);
            let rows = vec![vec![Some(0.5), None, Some(-1.0), Some(2.0)]; 3];
            let receipt = service.predict(&rows).unwrap().receipt;
            let text = serde_json::to_string(&receipt).unwrap();
            assert_eq!(receipt, serde_json::from_str(&text).unwrap());
            let verdict = |rows: &[Vec<Option<f32>>], receipt: &Receipt| {
                let (rows, receipt) = (rows.to_vec(), receipt.clone());
                service.replay(&Claim { rows, receipt }).unwrap()
            };
            assert!(verdict(&rows, &receipt).holds, "{file}");
            let mut other = receipt.clone();
            other.output[0].replace_range(7.., "x");
            assert!(!verdict(&rows, &other).output);
            let mut rows = rows;
            rows[0][0] = Some(0.25);
            let verdict = verdict(&rows, &receipt);
            assert!(!verdict.holds && !verdict.input && verdict.model);
            assert!(service.predict(&[vec![None]]).is_err());
        }
    }
    /// The status line and the body of the answer to one request.
    fn ask(address: std::net::SocketAddr, path: &str, body: &str) -> (String, String) {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_are_answered() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = axum::serve(listener, router(service("lgb-binary.txt")));
        let server = tokio::spawn(async move { server.await });
        let client = move || {
            let (status, body) = ask(address, "/predict", r#"{"rows": [[1.5, null, 0, 2]]}"#);
            assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
            let answer: serde_json::Value = serde_json::from_str(&body).unwrap();
            let claim = serde_json::json!({
                "rows": [[1.5, null, 0.0, 2.0]],
                "receipt": answer["receipt"],
            });
            let (status, body) = ask(address, "/replay", &claim.to_string());
            assert_eq!(status, "HTTP/1.1 200 OK", "{body}");
            let verdict: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(verdict["holds"], true);
            let (status, body) = ask(address, "/predict", r#"{"rows": [[1.5]]}"#);
            assert_eq!(status, "HTTP/1.1 400 Bad Request", "{body}");
            assert!(body.contains("expected shape 4, got 1"), "{body}");
        };
        tokio::task::spawn_blocking(client).await.unwrap();
        server.abort();
    }
}
