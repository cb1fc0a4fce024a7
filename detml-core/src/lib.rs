//! Data, errors, estimator traits, model files and bit hashes of detml.
