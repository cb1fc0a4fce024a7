//! Tells the binary which compiler made it: a witness names its toolchain.

use std::process::Command;

fn main() {
    let version = std::env::var_os("RUSTC")
        .and_then(|rustc| Command::new(rustc).arg("--version").output().ok())
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "rustc".into(), |text| text.trim().to_owned());
    println!("cargo:rustc-env=DETML_RUSTC={version}");
    println!("cargo:rerun-if-changed=build.rs");
}
