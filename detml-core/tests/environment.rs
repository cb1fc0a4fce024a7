//! `DETML_BACKEND` and `DETML_NUMERIC_MODE`, each read by a process of its own.

use std::process::Command;

use detml_core::{
    Backend, NumericMode, current_backend, current_numeric_mode, set_default_backend,
    set_default_numeric_mode, with_backend,
};

/// Prints the choices; run by the test below with an environment.
#[test]
#[ignore = "only meant to be run by `the_environment_chooses`"]
fn print_choices() {
    println!("first {:?} {:?}", current_backend(), current_numeric_mode());
    set_default_backend(Backend::Hip(3));
    set_default_numeric_mode(NumericMode::Deterministic);
    println!("then {:?} {:?}", current_backend(), current_numeric_mode());
    println!("inside {:?}", with_backend(Backend::Cpu, current_backend));
}

fn choices(backend: Option<&str>, mode: Option<&str>) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "print_choices", "--ignored", "--nocapture"]);
    for (name, value) in [("DETML_BACKEND", backend), ("DETML_NUMERIC_MODE", mode)] {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_environment_chooses() {
    let text = choices(None, None);
    assert!(text.contains("first Ok(Cpu) Ok(Identical)"), "{text}");
    assert!(text.contains("then Ok(Hip(3)) Ok(Deterministic)"), "{text}");
    assert!(text.contains("inside Ok(Cpu)"), "{text}");

    let text = choices(Some("cuda:2"), Some("fast"));
    assert!(text.contains("first Ok(Cuda(2)) Ok(Fast)"), "{text}");
    assert!(text.contains("then Ok(Cuda(2)) Ok(Fast)"), "{text}");
    assert!(text.contains("inside Ok(Cpu)"), "{text}");

    let text = choices(Some("gpu"), Some("exact"));
    assert!(
        text.contains(r#"Err(InvalidParameter { name: "DETML_BACKEND""#),
        "{text}"
    );
    assert!(
        text.contains(r#"Err(InvalidParameter { name: "DETML_NUMERIC_MODE""#),
        "{text}"
    );
    assert!(text.contains("inside Ok(Cpu)"), "{text}");
}
