//! The `detml` command as a person meets it: states, exit codes, damaged files.

use std::path::Path;
use std::process::{Command, Output};

/// Runs `detml` with no backend or level chosen by the environment.
fn detml(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_detml"))
        .args(arguments)
        .env_remove("DETML_BACKEND")
        .env_remove("DETML_SIMD")
        .output()
        .unwrap()
}

fn code(arguments: &[&str]) -> i32 {
    detml(arguments).status.code().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

const FEW: [&str; 4] = [
    "--lanes=map/exp",
    "--fixtures=ties",
    "--backend=cpu",
    "--all",
];

#[test]
fn every_level_of_this_cpu_has_the_references_bits() {
    let output = detml(&["verify", "--quick", "--backend=cpu"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).ends_with("VERIFIED\n"));
}

#[test]
fn every_fault_is_seen() {
    let output = detml(&["self-test", "--backend=cpu"]);
    let text = text(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("6 of 6 faults seen, and only those"),
        "{text}"
    );
}

#[test]
fn another_table_gives_another_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let table = path(&folder, "table.tsv");
    let verify = |more: &[&str]| {
        let reference = format!("--reference={table}");
        code(&[&["verify", &reference], &FEW[..], more].concat())
    };
    // No such table.
    assert_eq!(verify(&[]), 4);
    let bless = format!("--bless={table}");
    assert_eq!(code(&[&["verify", &bless], &FEW[..]].concat()), 0);
    assert_eq!(verify(&[]), 0);
    let whole = std::fs::read_to_string(&table).unwrap();
    // One bit of one hash.
    let flipped = |c: char| if c == '0' { '1' } else { '0' };
    let line = whole.lines().find(|l| l.starts_with("map/exp\t")).unwrap();
    let hash = line.split('\t').nth(3).unwrap();
    let other: String = flipped(hash.chars().next().unwrap())
        .to_string()
        .chars()
        .chain(hash.chars().skip(1))
        .collect();
    std::fs::write(&table, whole.replace(hash, &other)).unwrap();
    assert_eq!(verify(&[]), 1);
    // No entry.
    std::fs::write(&table, whole.replace(&format!("{line}\n"), "")).unwrap();
    assert_eq!(verify(&[]), 5);
    // Cut off in the middle of a hash.
    let cut = whole.find(hash).unwrap() + 9;
    std::fs::write(&table, &whole[..cut]).unwrap();
    assert_eq!(verify(&[]), 4);
    assert_eq!(verify(&["--lanes=nothing"]), 2);
    assert_eq!(verify(&["--no-such-flag"]), 2);
}

/// Writes a witness of few lanes, signed by a key of the folder; its path.
fn witness(folder: &tempfile::TempDir, name: &str, more: &[&str]) -> String {
    let file = path(folder, name);
    let (out, key) = (
        format!("--out={file}"),
        format!("--key={}", path(folder, "key")),
    );
    let output = detml(&[&["witness", &out, &key, "--backend=cpu"], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    file
}

const ONE: [&str; 3] = ["--lanes=map/expm1", "--fixtures=ties", "--all"];
const TWO: [&str; 3] = ["--lanes=map/expm1", "--fixtures=ti", "--all"];

#[test]
fn a_witness_is_judged_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = witness(&folder, "w.jsonl", &ONE);
    let judged = detml(&["verify", "--json", "--witness", &file]);
    assert_eq!(judged.status.code(), Some(0), "{}", text(&judged));
    let report: serde_json::Value = serde_json::from_slice(&judged.stdout).unwrap();
    assert_eq!(report["verdict"], "verified");
    // One digit of a hash: neither judged nor blessed.
    let whole = std::fs::read_to_string(&file).unwrap();
    let at = whole.find("\"result\":\"").unwrap() + 10;
    let digit = if &whole[at..=at] == "0" { "1" } else { "0" };
    std::fs::write(&file, [&whole[..at], digit, &whole[at + 1..]].concat()).unwrap();
    let refused = detml(&["verify", "--witness", &file]);
    assert_eq!(refused.status.code(), Some(8), "{}", text(&refused));
    assert!(text(&refused).contains("MALFORMED"), "{}", text(&refused));
    let table = path(&folder, "table.tsv");
    let bless = format!("--bless={table}");
    assert_eq!(code(&["verify", &bless, "--witness", &file]), 8);
    assert!(!Path::new(&table).exists());
    // No signature.
    let content = whole.split("{\"signature\"").next().unwrap();
    std::fs::write(&file, content).unwrap();
    assert_eq!(code(&["verify", "--witness", &file]), 8);
    assert_eq!(code(&["verify", "--witness", &path(&folder, "absent")]), 4);
}

#[test]
fn two_witnesses_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let one = witness(&folder, "one", &ONE);
    let again = witness(&folder, "again", &ONE);
    let two = witness(&folder, "two", &TWO);
    let compared = |a: &str, b: &str, expected: i32, words: &str| {
        let output = detml(&["compare", a, b]);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(expected), "{text}");
        assert!(text.contains(words), "{text}");
    };
    compared(&one, &again, 0, "AGREE in 1 results");
    compared(&one, &two, 7, "the first lacks 2 lanes on fixtures");
    compared(&one, &path(&folder, "absent"), 4, "absent");
    // Somebody else's results, with a key of their own.
    use detml_verify::signature::Signer;
    let signer = Signer::of_file(&folder.path().join("other")).unwrap();
    let whole = std::fs::read_to_string(&one).unwrap();
    let content = whole.split("{\"signature\"").next().unwrap();
    let forge = |name: &str, content: String| {
        let line = signer.line(content.as_bytes());
        std::fs::write(folder.path().join(name), content + &line).unwrap();
        path(&folder, name)
    };
    let at = content.find("\"result\":\"").unwrap() + 10;
    let (hash, zeros) = (&content[at..at + 32], "0".repeat(32));
    let other = forge("mismatch", content.replace(hash, &zeros));
    compared(&one, &other, 1, "map/expm1 on ties: result");
    let reference = content.split("\"reference\":\"").nth(1).unwrap();
    let other = forge("reference", content.replace(&reference[..32], &zeros));
    compared(&one, &other, 6, "INCOMPARABLE");
    let other = forge("contract", content.replace("detml.f32.v1", "detml.f32.v9"));
    compared(&one, &other, 6, "INCOMPARABLE");
    assert_eq!(code(&["verify", "--witness", &other]), 4);
    std::fs::write(folder.path().join("cut"), &whole[..whole.len() - 1]).unwrap();
    compared(&one, &path(&folder, "cut"), 8, "MALFORMED");
    std::fs::write(folder.path().join("empty"), "").unwrap();
    compared(&path(&folder, "empty"), &one, 8, "MALFORMED");
}

#[test]
fn the_users_key_is_made_once() {
    let folder = tempfile::tempdir().unwrap();
    let keys = || {
        let output = Command::new(env!("CARGO_BIN_EXE_detml"))
            .args(["witness", "--backend=cpu", "--out", &path(&folder, "w")])
            .args(ONE)
            .env_remove("DETML_SIMD")
            .env("HOME", folder.path())
            .env("XDG_CONFIG_HOME", folder.path())
            .output()
            .unwrap();
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        text.lines().last().unwrap().to_owned()
    };
    let first = keys();
    assert!(first.starts_with("signed by "), "{first}");
    assert_eq!(first, keys());
}

#[test]
fn a_wrong_choice_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = format!("--out={}", path(&folder, "w.jsonl"));
    let key = format!("--key={}", path(&folder, "key"));
    for (name, value) in [("DETML_SIMD", "mmx"), ("DETML_BACKEND", "abacus")] {
        let output = Command::new(env!("CARGO_BIN_EXE_detml"))
            .args(["witness", &out, &key])
            .env_remove("DETML_BACKEND")
            .env(name, value)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output).contains(name), "{}", text(&output));
    }
    let gone = detml(&["verify", "--backend=cuda:63"]);
    assert_eq!(gone.status.code(), Some(4), "{}", text(&gone));
}

#[test]
fn traces_of_two_levels_are_equal_and_a_changed_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (path(&folder, "a"), path(&folder, "b"));
    for (file, level) in [(&a, "plain"), (&b, "")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_detml"));
        command
            .args(["trace", "--fixture=ties", "--out", file])
            .env_remove("DETML_BACKEND")
            .env_remove("DETML_SIMD");
        if !level.is_empty() {
            command.env("DETML_SIMD", level);
        }
        assert!(command.status().unwrap().success());
    }
    assert_eq!(code(&["compare", &a, &b]), 0);
    let lines = std::fs::read_to_string(&b).unwrap();
    let third = lines.lines().nth(3).unwrap();
    let hash = third.split('"').nth(7).unwrap();
    std::fs::write(&b, lines.replace(hash, &"0".repeat(32))).unwrap();
    let output = detml(&["compare", &a, &b]);
    assert_eq!(output.status.code(), Some(1));
    let stage = third.split('"').nth(3).unwrap();
    assert!(text(&output).contains(stage), "{}", text(&output));
    std::fs::write(&b, &lines[..lines.len() / 2]).unwrap();
    assert_eq!(code(&["compare", &a, &b]), 8);
    let witness = witness(&folder, "w", &ONE);
    assert_eq!(code(&["compare", &a, &witness]), 6);
}
