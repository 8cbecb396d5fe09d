//! `kiln fmt`: canonical bytes, and bad input that costs nothing.

use kiln_testkit::{Tally, corpus, difference};

use crate::harness::Folder;

const MESSY: &str = "b: [1, 'two']\na: {y: yes}\n";
const CANONICAL: &str = "a:\n  \"y\": \"yes\"\nb:\n- 1\n- two\n";

#[test]
fn prints_all_documents_of_all_files_as_one_stream() {
    let folder = Folder::with(&[("1.yaml", MESSY), ("2.json", r#"{"kind": "Pod"}"#)]);
    let run = folder.kiln(&["fmt", "1.yaml", "2.json"]);
    assert_eq!((run.code, run.stdout), (0, format!("{CANONICAL}---\nkind: Pod\n")));
    let run = folder.kiln_with_input(&["fmt", "-"], b"a: 1\n---\n# nothing\n---\nb: 2\n");
    assert_eq!((run.code, run.stdout.as_str()), (0, "a: 1\n---\nb: 2\n"));
    let run = folder.kiln(&["fmt", ".", "--format", "json"]);
    assert_eq!(run.stdout, "{\"b\":[1,\"two\"],\"a\":{\"y\":\"yes\"}}\n{\"kind\":\"Pod\"}\n");
}

#[test]
fn check_names_what_differs_and_changes_nothing() {
    let folder = Folder::with(&[("good.yaml", CANONICAL), ("bad.yaml", MESSY)]);
    let run = folder.kiln(&["fmt", "--check", "good.yaml", "bad.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, "bad.yaml\n"));
    assert_eq!(folder.read("bad.yaml"), MESSY);
    assert_eq!(folder.kiln(&["fmt", "--check", "good.yaml"]).code, 0);
    let run = folder.kiln(&["fmt", "--check", "--diff", "bad.yaml"]);
    assert!(run.stdout.contains("-b: [1, 'two']\n") && run.stdout.contains("+- two\n"));
}

#[test]
fn write_replaces_files_and_is_then_done() {
    let folder = Folder::with(&[("a.yaml", MESSY), ("sub/b.yaml", MESSY)]);
    assert_eq!(folder.kiln(&["fmt", "--write", "."]).code, 0);
    assert_eq!(folder.read("a.yaml"), CANONICAL);
    assert_eq!(folder.read("sub/b.yaml"), CANONICAL);
    assert_eq!(folder.kiln(&["fmt", "--check", "."]).code, 0);
}

#[test]
fn write_changes_no_file_when_one_of_them_cannot_be_rewritten() {
    let commented = "# mine\nb: 1\na: 2\n";
    let folder = Folder::with(&[("a.yaml", MESSY), ("b.yaml", commented)]);
    let run = folder.kiln(&["fmt", "--write", "a.yaml", "b.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("b.yaml:1:1"), "{}", run.stderr);
    assert!(run.stderr.contains("--drop-comments"), "{}", run.stderr);
    assert_eq!((folder.read("a.yaml"), folder.read("b.yaml")), (MESSY.into(), commented.into()));

    let run = folder.kiln(&["fmt", "--write", "--drop-comments", "a.yaml", "b.yaml"]);
    assert_eq!(run.code, 0);
    assert_eq!(folder.read("b.yaml"), "a: 2\nb: 1\n");

    folder.write("b.yaml", "a: [1\n");
    folder.write("a.yaml", MESSY);
    assert_eq!(folder.kiln(&["fmt", "--write", "a.yaml", "b.yaml"]).code, 2);
    assert_eq!(folder.read("a.yaml"), MESSY);
}

#[test]
fn write_leaves_nothing_behind() {
    let folder = Folder::with(&[("a.yaml", MESSY)]);
    assert_eq!(folder.kiln(&["fmt", "--write", "a.yaml"]).code, 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn bad_input_is_an_error_with_a_place() {
    let bomb: String = (1..=9)
        .map(|level| {
            let below = if level == 1 { "x".to_owned() } else { format!("*a{}", level - 1) };
            format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", "))
        })
        .collect();
    let deep = "[".repeat(100_000);
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("alias bomb", bomb.into_bytes(), "alias"),
        ("nesting", deep.into_bytes(), "nest"),
        ("NUL", b"a: 1\nb: x\0y\n".to_vec(), "<stdin>:2:5"),
        ("half a character", b"a: 1\nb: \xe2\x82".to_vec(), "<stdin>:2:4"),
        ("duplicate", b"a: 1\nb: 2\na: 3\n".to_vec(), "<stdin>:3:1"),
        ("tab", b"a:\n\tb: 1\n".to_vec(), "<stdin>:2:1"),
        ("unclosed", b"a: [1, 2\nb: 3\n".to_vec(), "<stdin>:2:"),
    ];
    let folder = Folder::with(&[]);
    for (name, input, wanted) in cases {
        let run = folder.kiln_with_input(&["fmt", "-"], &input);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{name}: {}", run.stderr);
        assert!(run.stderr.contains(wanted), "{name}: {}", run.stderr);
        assert!(run.stderr.contains("<stdin>:"), "{name}: {}", run.stderr);
        assert!(run.stderr.len() < 3000, "{name}: the message is too long");

        let run = folder.kiln_with_input(&["fmt", "-", "--format", "json"], &input);
        let problem = kiln_value::json::parse(run.stderr.trim()).expect("one line of JSON");
        assert!(problem.get("line").and_then(kiln_value::Value::as_i64).is_some(), "{name}");
    }
}

#[test]
fn input_beyond_the_limit_is_not_even_read() {
    let folder = Folder::with(&[]);
    let run = folder.kiln_with_input(&["fmt", "-"], &vec![b'#'; 200_000_000]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--max-input-size"), "{}", run.stderr);
    let run =
        folder.kiln_with_input(&["fmt", "-", "--max-input-size", "10"], b"a: 1\nb: 2\nc: 3\n");
    assert_eq!(run.code, 2);
    let run =
        folder.kiln_with_input(&["fmt", "-", "--max-input-size", "1K"], b"a: 1\nb: 2\nc: 3\n");
    assert_eq!(run.code, 0);
}

#[test]
fn what_kustomize_printed_comes_out_unchanged() {
    let Some(cases) = corpus("kustomize") else { return };
    let folder = Folder::with(&[]);
    let mut tally = Tally::new("kiln fmt over kustomize's output");
    let mut expected = Vec::new();
    for case in std::fs::read_dir(cases).unwrap() {
        let Ok(files) = std::fs::read_dir(case.unwrap().path()) else { continue };
        expected.extend(files.map(|file| file.unwrap().path()).filter(|path| {
            path.extension().is_some_and(|ending| ending == "yaml")
                && path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("expected"))
        }));
    }
    for path in expected {
        let text = std::fs::read_to_string(&path).unwrap();
        tally.case(&path.display().to_string(), || {
            let run = folder.kiln_with_input(&["fmt", "-"], text.as_bytes());
            difference(&text, &run.stdout).map_or(Ok(()), |diff| Err(diff + &run.stderr))
        });
    }
    tally.finish();
}

#[cfg(unix)]
#[test]
fn write_follows_no_link_that_it_finds_in_a_folder() {
    let folder = Folder::with(&[("home/config", MESSY), ("repository/a.yaml", MESSY)]);
    let link = folder.path().join("repository/values.yaml");
    std::os::unix::fs::symlink("../home/config", &link).unwrap();
    let run = folder.kiln(&["fmt", "--write", "repository"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "repository/a.yaml\n"));
    assert_eq!(run.stderr, "repository/values.yaml is skipped: it is a link\n");
    assert_eq!(folder.read("home/config"), MESSY);
    assert!(link.is_symlink());
    // One that the user names is meant, and stays a link.
    assert_eq!(folder.kiln(&["fmt", "--write", "repository/values.yaml"]).code, 0);
    assert_eq!(folder.read("home/config"), CANONICAL);
    assert!(link.is_symlink());
}

#[cfg(unix)]
#[test]
fn pipes_in_folders_are_passed_over() {
    let policy = crate::harness::SETTINGS_POLICY;
    let folder = Folder::with(&[("rules/a.yaml", policy)]);
    let pipe = folder.path().join("rules/b.yaml");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("b.yaml", folder.path().join("rules/c.yaml")).unwrap();
    for args in [
        &["fmt", "rules"][..],
        &["fmt", "--check", "rules"],
        &["check", "rules"],
        &["apply", "rules", "--resource", "rules"],
        &["test", "rules"],
    ] {
        let run = folder.kiln(args);
        let said = "rules/b.yaml is skipped: it is not a regular file\n\
                    rules/c.yaml is skipped: it is not a regular file\n";
        assert!(args[0] == "test" || run.stderr.contains(said), "{args:?}: {}", run.stderr);
    }
}
