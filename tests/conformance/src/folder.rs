//! The vectors of one folder, file by file.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{run, vector};

/// Result of one file.
#[derive(Debug)]
pub(crate) struct FileResult {
    /// File name, or the path that could not be read.
    pub(crate) name: String,
    /// Vectors that passed.
    pub(crate) passed: usize,
    /// Failed vectors: name and cause.
    pub(crate) failures: Vec<String>,
}

impl FileResult {
    fn broken(name: &str, why: &str) -> Self {
        Self { name: name.to_owned(), passed: 0, failures: vec![format!("{name}: {why}")] }
    }
}

/// Runs every `*.json` of a folder, in the order of their names.
pub(crate) fn run(folder: &Path) -> Vec<FileResult> {
    let shown = folder.display().to_string();
    let names = match names(folder) {
        Ok(names) => names,
        Err(error) => return vec![FileResult::broken(&shown, &format!("cannot be listed: {error}"))],
    };
    if names.is_empty() {
        return vec![FileResult::broken(&shown, "has no *.json")];
    }
    names.iter().map(|name| file(folder, name)).collect()
}

fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if Path::new(&name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json")) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn file(folder: &Path, name: &str) -> FileResult {
    let vectors = fs::read_to_string(folder.join(name))
        .map_err(|error| format!("cannot be read: {error}"))
        .and_then(|text| {
            serde_json::from_str::<Vec<Value>>(&text)
                .map_err(|error| format!("is no list of vectors: {error}"))
        });
    match vectors {
        Ok(vectors) if vectors.is_empty() => FileResult::broken(name, "has no vectors"),
        Ok(vectors) => all(name, vectors),
        Err(why) => FileResult::broken(name, &why),
    }
}

fn all(name: &str, vectors: Vec<Value>) -> FileResult {
    let mut file = FileResult { name: name.to_owned(), passed: 0, failures: Vec::new() };
    for (number, vector) in (1..).zip(vectors) {
        let called = vector["name"].as_str().map_or_else(|| format!("vector {number}"), str::to_owned);
        match run::guarded(move || vector::check(vector)) {
            Ok(()) => file.passed += 1,
            Err(why) => file.failures.push(format!("{called}: {why}")),
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// Results of a folder with these files.
    fn of(test: &str, files: &[(&str, &str)]) -> Vec<FileResult> {
        let folder = env::temp_dir().join(format!("conformance-{test}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        let ran = run(&folder);
        fs::remove_dir_all(&folder).unwrap();
        ran
    }

    const GOOD: &str = r#"{"name":"good","numa_nodes":[0],"distances":null,"policy":"restricted",
        "prefer_closest":false,"providers":[null],"expect":{"nodes":[0],"preferred":true,"admit":true}}"#;

    #[test]
    fn what_cannot_be_run_is_a_failure_and_says_why() {
        for (text, said) in [
            ("{", "is no list of vectors"),
            ("{}", "is no list of vectors"),
            ("[]", "has no vectors"),
            ("[{\"name\":\"a\"}]", "a: unknown shape"),
            ("[7]", "vector 1: unknown shape"),
            ("[{\"providers\":3}]", "vector 1: merge: "),
        ] {
            let files = of("broken", &[("x.json", text)]);
            assert_eq!((files.len(), files[0].passed, files[0].failures.len()), (1, 0, 1), "{text}");
            assert!(files[0].failures[0].contains(said), "{text}: {}", files[0].failures[0]);
        }
        let nowhere = run(Path::new("/nonexistent/folder"));
        assert!(nowhere[0].failures[0].contains("cannot be listed"));
        assert!(of("none", &[("x.txt", "[]")])[0].failures[0].contains("has no *.json"));
    }

    #[test]
    fn each_vector_counts_and_a_wrong_expectation_fails() {
        let wrong = GOOD.replace("good", "wrong").replace("\"admit\":true", "\"admit\":false");
        let files = of("counts", &[("any.json", &format!("[{GOOD},{wrong},{GOOD}]"))]);
        assert_eq!(files[0].passed, 2);
        let [failure] = &files[0].failures[..] else { panic!("{files:?}") };
        assert!(failure.starts_with("wrong: expected ") && failure.contains(", actual "), "{failure}");
    }
}
