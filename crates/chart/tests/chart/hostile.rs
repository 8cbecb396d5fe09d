//! Charts that want to cost more than they may, or to lead out: an error, soon.

use std::io::Write;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;
use kiln_chart::{
    Chart, ChartError, ChartFiles, ChartLimits, ChartOptions, FileEntry, MemoryFiles, render,
};
use kiln_value::Map;

const CHART: &str = "apiVersion: v2\nname: app\nversion: 1.0.0\n";

/// How long any of these may take, on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn rendering(files: &[(&str, &str)], limits: ChartLimits) -> Result<String, ChartError> {
    let options = ChartOptions { limits, ..ChartOptions::default() };
    let files = MemoryFiles::new([("Chart.yaml", CHART)].into_iter().chain(files.iter().copied()));
    let chart = Chart::load(&files, &options)?;
    Ok(render(chart, &Map::new(), &options)?.text())
}

#[test]
fn templates_stop_at_their_budget() {
    let small = ChartLimits { steps: 200_000, bytes: 4 << 20, ..ChartLimits::default() };
    for (what, template) in [
        ("endless include", r#"{{ define "a" }}{{ include "a" . }}{{ end }}{{ include "a" . }}"#),
        (
            "endless template",
            r#"{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}"#,
        ),
        (
            "endless tpl",
            r#"{{ define "a" }}{{ tpl "{{ include \"a\" . }}" . }}{{ end }}{{ include "a" . }}"#,
        ),
        (
            "tpl of itself",
            r#"{{ $_ := set .Values "t" "{{ tpl .Values.t . }}" }}{{ tpl .Values.t . }}"#,
        ),
        ("huge repeat", r#"{{ repeat 1000000000 "abc" }}"#),
        ("huge range", "{{ range until 1000000000 }}{{ . }}{{ end }}"),
        (
            "doubling",
            r#"{{ $t := "x" }}{{ range until 60 }}{{ $t = print $t $t }}{{ end }}{{ $t }}"#,
        ),
        ("indentation", r#"{{ "a\nb\nc" | indent 1000000000 }}"#),
        (
            "two that include each other",
            r#"{{ define "a" }}{{ include "b" . }}{{ end }}{{ define "b" }}{{ include "a" . }}{{ end }}{{ include "a" . }}"#,
        ),
        ("nested YAML", r#"{{ fromYaml (repeat 100000 "[") }}"#),
        ("nested TOML", r#"{{ fromToml (print "a = " (repeat 100000 "[")) }}"#),
    ] {
        let begun = Instant::now();
        let result = rendering(&[("templates/a.yaml", template)], small);
        assert!(begun.elapsed() < SOON, "{what} took {:?}", begun.elapsed());
        // What cannot be read is a map with the error, as in Helm.
        if !what.starts_with("nested") {
            let said = result.unwrap_err().to_string();
            assert!(said.starts_with("app/templates/a.yaml:1:"), "{what}: {said}");
        }
    }
}

#[test]
fn aliases_of_values_are_no_bomb() {
    let mut values = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        let items = [below.as_str(); 10].join(", ");
        values.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    let begun = Instant::now();
    assert!(rendering(&[("values.yaml", &values)], ChartLimits::default()).is_err());
    assert!(begun.elapsed() < SOON);
}

#[test]
fn schemas_that_lead_in_circles_end() {
    let circle =
        r##"{"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}"##;
    assert!(rendering(&[("values.schema.json", circle)], ChartLimits::default()).is_err());
    let tree = r##"{"definitions": {"a": {"anyOf": [{"not": {"$ref": "#/definitions/a"}}, {"not": {"$ref": "#/definitions/a"}}]}}, "$ref": "#/definitions/a"}"##;
    let begun = Instant::now();
    assert!(rendering(&[("values.schema.json", tree)], ChartLimits::default()).is_err());
    assert!(begun.elapsed() < SOON);
}

/// Directories in directories, without an end.
struct Endless;

impl ChartFiles for Endless {
    fn list(&self, _: &str) -> Result<Vec<FileEntry>, String> {
        Ok(vec![FileEntry { name: "a".to_owned(), is_directory: true }])
    }

    fn read(&self, path: &str, _: usize) -> Result<Vec<u8>, String> {
        Err(format!("no such file: {path}"))
    }
}

#[test]
fn directories_without_an_end_are_left() {
    let limits = ChartLimits { files: 500, ..ChartLimits::default() };
    let said =
        Chart::load(&Endless, &ChartOptions { limits, ..ChartOptions::default() }).unwrap_err();
    assert!(said.to_string().contains("more than 500 files"), "{said}");
}

/// A packaged chart of these entries: name, kind and content.
fn package(entries: &[(&str, u8, &[u8])]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    for (name, kind, content) in entries {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[156] = *kind;
        header[257..263].copy_from_slice(b"ustar\0");
        out.write_all(&header).unwrap();
        out.write_all(content).unwrap();
        out.write_all(&vec![0; content.len().next_multiple_of(512) - content.len()]).unwrap();
    }
    out.write_all(&[0; 1024]).unwrap();
    out.finish().unwrap()
}

#[test]
fn packages_render_like_directories() {
    let package = package(&[
        ("app/", b'5', b""),
        ("app/Chart.yaml", b'0', CHART.as_bytes()),
        ("app/templates/a.yaml", b'0', b"name: {{ .Chart.Name }}\n"),
    ]);
    let options = ChartOptions::default();
    let chart = Chart::load_package(&package, &options).unwrap();
    let text = render(chart, &Map::new(), &options).unwrap().text();
    assert_eq!(text, "---\n# Source: app/templates/a.yaml\nname: app\n");
}

#[test]
fn no_entry_of_a_package_leads_out() {
    let chart = ("app/Chart.yaml", b'0', CHART.as_bytes());
    for (entry, wanted) in [
        (("app/../../etc/passwd", b'0', &b"x"[..]), "parent directory"),
        (("app//etc/passwd", b'0', b"x"), "absolute paths"),
        (("app/c:/windows", b'0', b"x"), "illegally named"),
        (("app", b'0', b"x"), "outside the base directory"),
        (("app/link", b'2', b""), "a link"),
        (("app/link", b'1', b""), "a link"),
        (("app/device", b'3', b""), "not a file"),
    ] {
        let said =
            Chart::load_package(&package(&[chart, entry]), &ChartOptions::default()).unwrap_err();
        assert!(said.to_string().contains(wanted), "{}: {said}", entry.0);
    }
    for broken in [&b""[..], b"PK\x03\x04", b"\x1F\x8B\x08", b"\x1F\x8Bxxxxxxxxxxxxxxxx"] {
        assert!(Chart::load_package(broken, &ChartOptions::default()).is_err());
    }
}

#[test]
fn packages_that_unpack_to_too_much_are_refused() {
    let zeros = vec![b' '; 5 << 20];
    let chart = ("app/Chart.yaml", b'0', CHART.as_bytes());
    let large = vec![b' '; (5 << 20) + 1];
    let said =
        Chart::load_package(&package(&[chart, ("app/a", b'0', &large)]), &ChartOptions::default());
    assert!(said.unwrap_err().to_string().contains("maximum file size"));
    let many: Vec<(&str, u8, &[u8])> = std::iter::once(chart)
        .chain(std::iter::repeat_n(("app/a", b'0', &zeros[..]), 21))
        .collect();
    let bomb = package(&many);
    assert!(bomb.len() < 1 << 20, "{} bytes", bomb.len());
    let said = Chart::load_package(&bomb, &ChartOptions::default()).unwrap_err();
    assert!(said.to_string().contains("larger than"), "{said}");
    // In a package in a package, too.
    let outer = package(&[chart, ("app/charts/b.tgz", b'0', &bomb)]);
    assert!(Chart::load_package(&outer, &ChartOptions::default()).is_err());
}

#[test]
fn packages_in_packages_end() {
    let chart = ("app/Chart.yaml", b'0', CHART.as_bytes());
    let mut inner = package(&[chart]);
    for _ in 0..40 {
        inner = package(&[chart, ("app/charts/b.tgz", b'0', &inner)]);
    }
    let said = Chart::load_package(&inner, &ChartOptions::default()).unwrap_err();
    assert!(said.to_string().contains("deeper than"), "{said}");
}

#[test]
fn errors_tell_file_line_and_column() {
    for (files, wanted) in [
        (&[("templates/a.yaml", "a: 1\nb: {{ .Values.x.y }}\n")][..], "app/templates/a.yaml:2:"),
        (
            &[
                ("templates/a.yaml", r#"{{ include "h" . }}"#),
                ("templates/_h.tpl", "{{ define \"h\" }}\n  {{ .Values.x.y }}{{ end }}"),
            ],
            "app/templates/_h.tpl:2:",
        ),
        (&[("templates/a.yaml", "a: 1\n{{ nope }}\n")], "app/templates/a.yaml:2:"),
        (&[("templates/a.yaml", "a: 1\n b: 2\n")], "app/templates/a.yaml (rendered):2:"),
        (&[("values.yaml", "a: [1\n")], "values.yaml:"),
    ] {
        let said = rendering(files, ChartLimits::default()).unwrap_err().to_string();
        assert!(said.starts_with(wanted), "{said}");
    }
}
