//! Signatures of witness files, by Ed25519 (RFC 8032).
//!
//! The last line of a signed file is
//!
//! ```text
//! {"signature":{"key":"64 digits","ed25519":"128 digits"}}
//! ```
//!
//! with the public key and the signature of all bytes above the line, in hexadecimal digits. Only
//! these bytes are such a line: no other spelling of the same JSON is taken. The signature says that
//! nothing was changed since the holder of the key wrote the file, not who that is.

use detml_core::{Error, Result};
use ed25519_dalek::{Signature, SigningKey, VerifyingKey};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

const START: &str = "{\"signature\":{\"key\":\"";
const MIDDLE: &str = "\",\"ed25519\":\"";
const END: &str = "\"}}\n";
const KEY: usize = 2 * 32;
const SIGNATURE: usize = 2 * 64;
const LINE: usize = START.len() + KEY + MIDDLE.len() + SIGNATURE + END.len();

/// A secret key that signs.
pub struct Signer(SigningKey);

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.public_key())
    }
}

impl Signer {
    /// The user's key: `witness.key` in the folder `detml` of the system's folder for settings
    /// (`$XDG_CONFIG_HOME` or `~/.config`, on a Mac `~/Library/Application Support`, on Windows
    /// `%APPDATA%`). It is made when it is first asked for.
    ///
    /// # Errors
    /// `InvalidParameter` if the system names no such folder; those of [`of_file`](Self::of_file).
    pub fn of_user() -> Result<Self> {
        let folder = settings().ok_or_else(|| {
            let got = "neither HOME nor a folder for settings in the environment";
            Error::parameter("key", "a file for the key, by --key FILE", got)
        })?;
        Self::of_file(&folder.join("detml").join("witness.key"))
    }

    /// The key of a file: a line of 64 hexadecimal digits. A file that is absent is made, with a new
    /// key from the system's source of random numbers, for its owner alone to read.
    ///
    /// # Errors
    /// `Io`; `Parse` if the file holds no key; `Unsupported` if the system has no random numbers.
    pub fn of_file(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::io(path, &e);
        let file = match std::fs::File::open(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Self::create(path),
            file => file.map_err(failed)?,
        };
        let mut bytes = Vec::new();
        file.take(KEY as u64 + 3)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        // Never shown: it is the secret.
        let refused = || {
            let expected = "a key of 64 hexadecimal digits";
            Error::parse(path.display().to_string(), 1, expected, "something else")
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| refused())?;
        let seed = from_hex(text.trim_end().as_bytes()).ok_or_else(refused)?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    fn create(path: &Path) -> Result<Self> {
        let failed = |e: std::io::Error| Error::io(path, &e);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)
            .map_err(|e| Error::unsupported("a new key on this system", e.to_string()))?;
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(failed)?;
        file.write_all(format!("{}\n", to_hex(&seed)).as_bytes())
            .map_err(failed)?;
        Ok(Self(SigningKey::from_bytes(&seed)))
    }

    /// The public key, 64 hexadecimal digits.
    pub fn public_key(&self) -> String {
        to_hex(self.0.verifying_key().as_bytes())
    }

    /// The line that ends a file of these bytes.
    pub fn line(&self, content: &[u8]) -> String {
        use ed25519_dalek::ed25519::signature::Signer as _;
        let signature = to_hex(&self.0.sign(content).to_bytes());
        let key = self.public_key();
        format!("{START}{key}{MIDDLE}{signature}{END}")
    }
}

/// The content of a signed file and the public key that signed it; `origin` names the file in
/// errors.
///
/// # Errors
/// `Parse` if there is no signature line, or the signature is not that of the content.
pub fn verified<'a>(bytes: &'a [u8], origin: &str) -> Result<(&'a [u8], String)> {
    let refused = |got: &str| Error::parse(origin, 0, "a file that ends in its signature", got);
    let at = bytes
        .len()
        .checked_sub(LINE)
        .filter(|at| *at > 0 && bytes[at - 1] == b'\n')
        .ok_or_else(|| refused("no line of a signature"))?;
    let (content, line) = bytes.split_at(at);
    let (key, signature) = parts(line).ok_or_else(|| refused("no line of a signature"))?;
    VerifyingKey::from_bytes(&key)
        .and_then(|key| key.verify_strict(content, &Signature::from_bytes(&signature)))
        .map_err(|_| refused("a signature that is not of these bytes"))?;
    Ok((content, to_hex(&key)))
}

fn parts(line: &[u8]) -> Option<([u8; 32], [u8; 64])> {
    let rest = line.strip_prefix(START.as_bytes())?;
    let (key, rest) = rest.split_at_checked(KEY)?;
    let rest = rest.strip_prefix(MIDDLE.as_bytes())?;
    let (signature, rest) = rest.split_at_checked(SIGNATURE)?;
    (rest == END.as_bytes()).then_some((from_hex(key)?, from_hex(signature)?))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lower-case digits only: each value has one spelling.
fn from_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// Where the system keeps settings of programs.
fn settings() -> Option<PathBuf> {
    let folder = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if cfg!(windows) {
        return folder("APPDATA");
    }
    if cfg!(target_os = "macos") {
        return folder("HOME").map(|home| home.join("Library/Application Support"));
    }
    folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_rfc_8032() {
        // Section 7.1, test 3.
        let seed = "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7";
        let signer = Signer(SigningKey::from_bytes(&from_hex(seed.as_bytes()).unwrap()));
        let line = signer.line(&[0xaf, 0x82]);
        assert!(line.contains("fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025"));
        assert!(line.contains(
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac\
             18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ));
        assert_eq!(line.len(), LINE);
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/a.key");
        let first = Signer::of_file(&path).unwrap();
        let again = Signer::of_file(&path).unwrap();
        assert_eq!(first.public_key(), again.public_key());
        let other = Signer::of_file(&folder.path().join("b.key")).unwrap();
        assert_ne!(first.public_key(), other.public_key());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
        }
        for bad in ["", "abc\n", &"g".repeat(64), &"0".repeat(66)] {
            std::fs::write(&path, bad).unwrap();
            let error = Signer::of_file(&path).unwrap_err();
            assert!(matches!(error, Error::Parse { .. }), "{error}");
        }
    }

    #[test]
    fn only_the_signed_bytes_are_verified() {
        let folder = tempfile::tempdir().unwrap();
        let signer = Signer::of_file(&folder.path().join("a.key")).unwrap();
        let mut file = b"one line\n".to_vec();
        let line = signer.line(&file);
        file.extend(line.as_bytes());
        let (content, key) = verified(&file, "f").unwrap();
        assert_eq!(content, b"one line\n");
        assert_eq!(key, signer.public_key());
        let more = [&file[..], b"\n"].concat();
        let spelled = String::from_utf8(file.clone()).unwrap().replace(':', ": ");
        let alone = line.into_bytes();
        for bad in [more, spelled.into_bytes(), alone, Vec::new()] {
            assert!(matches!(verified(&bad, "f"), Err(Error::Parse { .. })));
        }
    }
}
